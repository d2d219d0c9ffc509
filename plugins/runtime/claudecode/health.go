package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// ownGroup lets a child be ended with all that it has started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

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
	p.Health().Unavailable("Claude Code at "+c.onHost()+" is looked at", map[string]string{"binary": c.onHost()})
	p.idle.Go(func() { p.look(ctx, c, stateDir, runDir) })
}

// lookAgain is how often the file is looked at for a change.
const lookAgain = 10 * time.Second

// look sets the health, and does it again when the file has changed.
func (p *claude) look(ctx context.Context, c *compiled, stateDir, runDir string) {
	set := func(do func(*plugin.Health)) {
		if ctx.Err() == nil { // a newer configuration has its own look
			do(p.Health())
		}
	}
	for {
		was := signature(c.onHost())
		tryOut(ctx, c, stateDir, runDir, set)
		for signature(c.onHost()) == was {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookAgain):
			}
		}
	}
}

// signature changes with a file.
func signature(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Size(), st.ModTime().UnixNano(), st.Mode(), st.Sys().(*syscall.Stat_t).Ino)
}

// tryOut looks at the binary and tries its gates, or remembers that they held.
func tryOut(ctx context.Context, c *compiled, stateDir, runDir string, set func(func(*plugin.Health))) {
	facts := map[string]string{"binary": c.onHost(), "tested_version": tested}
	unavailable := func(reason string) { set(func(h *plugin.Health) { h.Unavailable(reason, facts) }) }
	dir, err := trialDir(runDir)
	if err != nil {
		unavailable("there is no directory to try Claude Code out in: " + err.Error())
		return
	}
	defer os.RemoveAll(dir)
	b, err := inspect(ctx, c, dir)
	if err != nil {
		unavailable(err.Error())
		return
	}
	facts["version"], facts["digest"] = b.version.String(), b.digest
	self, err := digestFile(ctx, "/proc/self/exe")
	if err != nil {
		self = "" // then nothing is remembered
	}
	results := remembered(stateDir, b.digest, self)
	if results == nil {
		results, err = tryAll(ctx, b.path, dir, func(done int) {
			unavailable(fmt.Sprintf("the gates of Claude Code %s are tried out (%d of %d)", b.version, done, len(canaries)))
		})
		if err != nil {
			return // a newer configuration, or the end
		}
		if err := remember(stateDir, b.digest, self, results); err != nil && len(failed(results)) == 0 {
			facts["canaries"] = "not kept: " + err.Error()
		}
	}
	for name := range canaries {
		facts["canary."+name] = results[name]
	}
	if bad := failed(results); len(bad) > 0 {
		unavailable(fmt.Sprintf("Claude Code %s does not hold every call at its gates, so no mission is run with it. %s (%s): %s. Tested is version %s; the canary.* facts have all of them",
			b.version, bad[0], canaries[bad[0]], results[bad[0]], tested))
		return
	}
	set(func(h *plugin.Health) { h.Healthy(facts) })
}

// maxTrialDir leaves room for a socket's name below it.
const maxTrialDir = 70

// trialDir is a directory for trials; the plugin's own, if its name is short
// enough for a socket.
func trialDir(runDir string) (string, error) {
	if dir, err := os.MkdirTemp(runDir, "c"); err == nil {
		if len(dir) <= maxTrialDir {
			return dir, nil
		}
		_ = os.Remove(dir)
	}
	return os.MkdirTemp("", "alc")
}
