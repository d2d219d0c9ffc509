package cellagent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups are the directories that the driver has given to the agent with
// --cgroup. Each is used for what it can do: one that can be killed or frozen
// holds a child group per session; one that counts OOM kills is asked.
type cgroups struct {
	kill   string   // a v2 directory
	freeze string   // a v1 freezer directory
	oom    []string // files with an oom_kill line
}

func findCgroups(dirs []string) cgroups {
	var c cgroups
	for _, d := range dirs {
		if exists(filepath.Join(d, "cgroup.kill")) || exists(filepath.Join(d, "cgroup.controllers")) {
			c.kill = d
		}
		if exists(filepath.Join(d, "tasks")) && exists(filepath.Join(d, "freezer.state")) {
			c.freeze = d
		}
		for _, f := range []string{"memory.events", "memory.oom_control"} {
			if p := filepath.Join(d, f); exists(p) {
				c.oom = append(c.oom, p)
			}
		}
	}
	return c
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// oomKills counts the processes that the kernel has killed for memory.
func (c cgroups) oomKills() (n uint64) {
	for _, path := range c.oom {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			if f := strings.Fields(string(line)); len(f) == 2 && f[0] == "oom_kill" {
				v, _ := strconv.ParseUint(f[1], 10, 64)
				n += v
			}
		}
	}
	return n
}

// cgroup is one session's own group.
type cgroup struct {
	v2  string // or empty
	v1  string // a freezer group, or empty
	top string // the v1 group that the agent itself is in
}

// child makes a session's group; nil where none can be made, which leaves the
// walk over /proc.
func (c cgroups) child(name string) *cgroup {
	g := &cgroup{}
	if c.kill != "" {
		if d := filepath.Join(c.kill, name); os.Mkdir(d, 0o700) == nil {
			g.v2 = d
		}
	}
	if g.v2 == "" && c.freeze != "" {
		if d := filepath.Join(c.freeze, name); os.Mkdir(d, 0o700) == nil {
			g.v1, g.top = d, c.freeze
		}
	}
	if g.v2 == "" && g.v1 == "" {
		return nil
	}
	return g
}

// enter arranges that the next fork of this thread lands in the group: on v2
// the kernel clones into it, on v1 the thread goes in and out again.
func (g *cgroup) enter(sys *syscall.SysProcAttr) (leave func(), err error) {
	if g.v2 != "" {
		fd, err := unix.Open(g.v2, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		sys.UseCgroupFD, sys.CgroupFD = true, fd
		return func() { _ = unix.Close(fd) }, nil
	}
	tid := []byte(strconv.Itoa(unix.Gettid()))
	if err := os.WriteFile(filepath.Join(g.v1, "tasks"), tid, 0); err != nil {
		return nil, err
	}
	return func() { _ = os.WriteFile(filepath.Join(g.top, "tasks"), tid, 0) }, nil
}

// pids lists the processes in the group; zombies are not among them on v2.
func (g *cgroup) pids() []int {
	b, err := os.ReadFile(filepath.Join(g.v2+g.v1, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// killAll sends SIGKILL to everything in the group in one step that no fork
// escapes, where the kernel has one.
func (g *cgroup) killAll() {
	if g.v2 != "" {
		if os.WriteFile(filepath.Join(g.v2, "cgroup.kill"), []byte("1"), 0) == nil {
			return
		}
		_ = os.WriteFile(filepath.Join(g.v2, "cgroup.freeze"), []byte("1"), 0)
		g.killEach()
		_ = os.WriteFile(filepath.Join(g.v2, "cgroup.freeze"), []byte("0"), 0)
		return
	}
	state := filepath.Join(g.v1, "freezer.state")
	_ = os.WriteFile(state, []byte("FROZEN"), 0)
	for i := 0; i < 50; i++ { // v1 freezes on its own time
		b, err := os.ReadFile(state)
		if err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			break
		}
		_ = os.WriteFile(state, []byte("FROZEN"), 0)
		time.Sleep(time.Millisecond)
	}
	g.killEach()
	_ = os.WriteFile(state, []byte("THAWED"), 0)
}

func (g *cgroup) killEach() {
	for _, pid := range g.pids() {
		p, ok := readProc(pid)
		if ok && g.has(pid) { // still in the group, so it is the one that was meant
			_ = signalProc(p, unix.SIGKILL)
		}
	}
}

// has says whether a pid is in the group now.
func (g *cgroup) has(pid int) bool {
	for _, p := range g.pids() {
		if p == pid {
			return true
		}
	}
	return false
}

// remove removes the group once it is empty.
func (g *cgroup) remove() error {
	var err error
	for i := 0; i < 20; i++ { // the last task leaves a moment after it was reaped
		if err = unix.Rmdir(g.v2 + g.v1); err == nil || err == unix.ENOENT {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("remove cgroup: %w", err)
}
