package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pause between two looks at a control file that does not notify.
const pause = time.Millisecond

// tracker is the directory by which the group's processes are known.
func (g *Group) tracker() string {
	if g.V2 != "" {
		return g.V2
	}
	for _, c := range []string{freezer, pids, memory, cpu} {
		if g.V1[c] != "" {
			return g.V1[c]
		}
	}
	return ""
}

// Tracks says whether the group has a hierarchy that knows its processes.
func (g *Group) Tracks() bool { return g != nil && g.tracker() != "" }

// CanFreeze says whether the group can be frozen.
func (g *Group) CanFreeze() bool { return g != nil && (g.V2 != "" || g.V1[freezer] != "") }

// Populated says whether any process that is not a zombie is in the group. A
// group that does not exist is empty.
func (g *Group) Populated() (bool, error) {
	if g.V2 != "" {
		n, ok := field(path.Join(g.V2, "cgroup.events"), "populated")
		if !ok && exists(g.V2) {
			return false, fmt.Errorf("read %s/cgroup.events: no populated field", g.V2)
		}
		return n == 1, nil
	}
	list, err := procs(g.tracker())
	return len(list) > 0, err
}

// Kill kills everything in the group and returns when it is empty. A frozen
// group is killed too: v2 kills it as it is, v1 needs a thaw after the kill.
func (g *Group) Kill(ctx context.Context) error {
	for {
		if err := g.killOnce(); err != nil {
			return err
		}
		populated, err := g.Populated()
		if err != nil || !populated {
			return err
		}
		if err := g.changed(ctx); err != nil {
			return fmt.Errorf("group %s is not empty: %w", g.tracker(), err)
		}
	}
}

func (g *Group) killOnce() error {
	if g.V2 != "" {
		err := write(path.Join(g.V2, "cgroup.kill"), "1")
		if err == nil || !exists(g.V2) {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) { // a kernel before 5.14 has no such file
			return fmt.Errorf("kill group: %w", err)
		}
	}
	// Frozen, a fork bomb cannot outrun the walk.
	frozen := g.CanFreeze() && g.setFrozen(true) == nil
	list, err := procs(g.tracker())
	for _, pid := range list {
		if e := unix.Kill(pid, unix.SIGKILL); e != nil && !errors.Is(e, unix.ESRCH) {
			err = fmt.Errorf("kill pid %d: %w", pid, e)
		}
	}
	if frozen {
		_ = g.setFrozen(false)
	}
	return err
}

// Freeze stops everything in the group and returns when it stands still.
func (g *Group) Freeze(ctx context.Context) error { return g.freeze(ctx, true) }

// Thaw lets the group run again.
func (g *Group) Thaw(ctx context.Context) error { return g.freeze(ctx, false) }

func (g *Group) freeze(ctx context.Context, on bool) error {
	for {
		// Again in each round: v1 looks at a parent that waits in vfork for a
		// frozen child only when it is told.
		if err := g.setFrozen(on); err != nil {
			return fmt.Errorf("freeze group: %w", err)
		}
		frozen, err := g.Frozen()
		if err != nil || frozen == on {
			return err
		}
		if err := g.changed(ctx); err != nil {
			return fmt.Errorf("group %s does not change its state: %w", g.tracker(), err)
		}
	}
}

func (g *Group) setFrozen(on bool) error {
	if g.V2 != "" {
		return write(path.Join(g.V2, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on])
	}
	return write(path.Join(g.V1[freezer], "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[on])
}

// Frozen says whether the whole group stands still.
func (g *Group) Frozen() (bool, error) {
	if g.V2 != "" {
		n, _ := field(path.Join(g.V2, "cgroup.events"), "frozen")
		return n == 1, nil
	}
	b, err := os.ReadFile(path.Join(g.V1[freezer], "freezer.state"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

// changed waits for the group's events file to change, or a moment where it
// cannot tell.
func (g *Group) changed(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.V2 != "" {
		if f, err := os.Open(path.Join(g.V2, "cgroup.events")); err == nil {
			defer f.Close()
			p := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
			_, _ = unix.Poll(p, int(pause.Milliseconds()))
			return ctx.Err()
		}
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Remove removes the groups and every group below them. Everything in them
// must be dead; the kernel may need a moment to see it.
func (g *Group) Remove(ctx context.Context) error {
	for _, dir := range g.Dirs() {
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("remove group: %w", err)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return fmt.Errorf("remove group %s: still busy: %w", dir, ctx.Err())
			}
		}
	}
	return nil
}

// removeNow tries once, for groups that were never used.
func (g *Group) removeNow() {
	for _, dir := range g.Dirs() {
		_ = os.Remove(dir)
	}
}

// Dirs are the group's directories.
func (g *Group) Dirs() []string {
	var out []string
	if g.V2 != "" {
		out = append(out, g.V2)
	}
	for _, d := range g.V1 {
		out = append(out, d)
	}
	return out
}

// removeTree removes a group and the groups below it; files in cgroupfs go
// with their directory.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(path.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// procs lists the processes of a group and the groups below it.
func procs(dir string) ([]int, error) {
	b, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of a group: %w", err)
	}
	var out []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			out = append(out, pid)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			below, err := procs(path.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
	}
	return out, nil
}
