package kernel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Groups are the directories of a container's control groups: the one of the
// unified hierarchy, and those of three v1 controllers: freezer, pids, memory.
type Groups []string

// hierarchies finds where control groups are mounted: "" is the unified
// hierarchy, else the name of a v1 controller.
func hierarchies() (map[string]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			add(out, "", left[4])
		case "cgroup":
			for _, option := range strings.Split(right[2], ",") {
				if option == "freezer" || option == "pids" || option == "memory" {
					add(out, option, left[4])
				}
			}
		}
	}
	return out, nil
}

// add keeps the first mount of a hierarchy.
func add(m map[string]string, name, at string) {
	if m[name] == "" {
		m[name] = at
	}
}

// GroupsOf finds the control groups that a process is in. A group whose name
// does not hold the container's id is not the container's own and left out.
func GroupsOf(pid int, id string) (Groups, error) {
	mounts, err := hierarchies()
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, fmt.Errorf("control groups of pid %d: %w", pid, err)
	}
	var out Groups
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		for _, controller := range strings.Split(part[1], ",") {
			at, mounted := mounts[controller]
			dir := filepath.Join(at, part[2])
			if mounted && strings.Contains(filepath.Base(dir), id) && exists(dir) {
				out = append(out, dir)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// maxDepth is how deep below a hierarchy a container's group is looked for.
const maxDepth = 8

// Find looks for groups with a container's id in their name, for one whose
// init is gone. ok is false when there is no hierarchy to look in.
func Find(id string) (g Groups, ok bool) {
	mounts, err := hierarchies()
	if err != nil || id == "" {
		return nil, false
	}
	for _, top := range mounts {
		ok = true
		depth := strings.Count(top, "/")
		_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return nil
			case strings.Contains(d.Name(), id):
				g = append(g, p)
				return fs.SkipDir
			case strings.Count(p, "/")-depth > maxDepth:
				return fs.SkipDir
			}
			return nil
		})
	}
	slices.Sort(g)
	return g, ok
}

// Own says whether these can be groups of the container: absolute, clean, with
// its id in the name.
func (g Groups) Own(id string) bool {
	for _, dir := range g {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || id == "" || !strings.Contains(filepath.Base(dir), id) {
			return false
		}
	}
	return true
}

// Processes lists what is in the groups and runs; a zombie is dead.
func (g Groups) Processes() ([]int, error) {
	var out []int
	for _, top := range g {
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			b, err := os.ReadFile(filepath.Join(p, "cgroup.procs"))
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, f := range bytes.Fields(b) {
				pid, err := strconv.Atoi(string(f))
				if err != nil || pid <= 0 {
					continue
				}
				if state, _, err := stat(pid); err == nil && state != 'Z' && state != 'X' {
					out = append(out, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("processes of %s: %w", top, err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Signal sends SIGKILL to everything in the groups. What a v1 freezer holds
// dies when it is thawed, without running before.
func (g Groups) Signal() error {
	for _, dir := range g {
		if exists(filepath.Join(dir, "cgroup.kill")) &&
			os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
			return nil
		}
	}
	pids, err := g.Processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone
		}
		// Still in the group, so it is the one that was meant.
		if now, err := g.Processes(); err == nil && slices.Contains(now, pid) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
	return nil
}

// thaw lets what a v1 freezer holds go on, to die of a signal.
func (g Groups) thaw() {
	for _, dir := range g {
		if state := filepath.Join(dir, "freezer.state"); exists(state) {
			_ = os.WriteFile(state, []byte("THAWED"), 0)
		}
	}
}

// Kill ends everything in the groups and returns when nothing of it is left.
func (g Groups) Kill(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		if err := g.Signal(); err != nil {
			return false, err
		}
		g.thaw()
		left, err := g.Processes()
		return len(left) == 0, err
	})
}

// Empty waits until nothing is left in the groups.
func (g Groups) Empty(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		left, err := g.Processes()
		return len(left) == 0, err
	})
}

// OOMKills counts the processes that the kernel has killed for memory.
func (g Groups) OOMKills() (n uint64) {
	for _, dir := range g {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
					v, _ := strconv.ParseUint(f[1], 10, 64)
					n = max(n, v)
				}
			}
		}
	}
	return n
}

// until asks again and again, until ok or the end of ctx.
func until(ctx context.Context, ok func() (bool, error)) error {
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
