package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets a child be ended with all that it has started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// watch looks at the binary in the background: no mission is taken until its
// gates were found to hold.
func (p *claude) watch(c *compiled, stateDir, runDir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.checking != nil {
		p.checking()
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.checking = cancel
	p.Health().Unavailable("the gates of Claude Code at "+c.onHost()+" are tried out", map[string]string{"binary": c.onHost()})
	p.idle.Go(func() { p.look(ctx, c, stateDir, runDir) })
}

// look sets the health.
func (p *claude) look(ctx context.Context, c *compiled, stateDir, runDir string) {
	facts := map[string]string{"binary": c.onHost(), "tested_version": tested}
	set := func(do func()) {
		if ctx.Err() == nil { // a newer configuration has its own look
			do()
		}
	}
	dir, err := os.MkdirTemp(runDir, "c")
	if err != nil {
		set(func() { p.Health().Unavailable("no directory to try Claude Code out in: "+err.Error(), facts) })
		return
	}
	defer os.RemoveAll(dir)
	b, err := inspect(ctx, c, dir)
	if err != nil {
		set(func() { p.Health().Unavailable(err.Error(), facts) })
		return
	}
	facts["version"], facts["digest"] = b.version.String(), b.digest
	set(func() { p.Health().Degraded("its gates were not tried out on this machine", facts) })
}
