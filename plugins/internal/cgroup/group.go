package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of a group; 0 = none.
type Limits struct {
	CPU    float64
	Memory uint64 // bytes, swap included
	Pids   uint64
}

// Group is a cell's groups; it travels in the cell's handle.
type Group struct {
	// V2 is the directory in the cgroup2 hierarchy; empty = none.
	V2 string `json:"v2,omitempty"`
	// V1 maps controllers to directories.
	V1 map[string]string `json:"v1,omitempty"`
}

const period = 100_000 // µs, for CPU quotas

// Create makes the groups of a cell with its limits. by says for cpu, memory
// and pids how each is enforced. On an error nothing is left.
func (p *Parent) Create(name string, want Limits) (_ *Group, by map[string]string, err error) {
	p.prepare()
	g := &Group{V1: map[string]string{}}
	defer func() {
		if err != nil {
			g.removeNow()
		}
	}()
	for c, dir := range p.dirs {
		at := path.Join(dir, name)
		err := os.Mkdir(at, 0o755)
		if errors.Is(err, os.ErrNotExist) { // somebody has removed the parent
			if err = p.remake(c, dir); err == nil {
				err = os.Mkdir(at, 0o755)
			}
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, fmt.Errorf("make group: %w", err)
		}
		if c == "" {
			g.V2 = at
		} else {
			g.V1[c] = at
		}
	}
	by = p.Support()
	for c, how := range by {
		asked := c == cpu && want.CPU > 0 || c == memory && want.Memory > 0 || c == pids && want.Pids > 0
		if !asked {
			by[c] = "not-enforced:no limit was set"
			continue
		}
		switch how {
		case "enforced-by:cgroup-v2":
			err = limitV2(g.V2, c, want)
		case "enforced-by:cgroup-v1":
			err = limitV1(g.V1[c], c, want)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("set %s limit: %w", c, err)
		}
	}
	return g, by, nil
}

func limitV2(dir, controller string, l Limits) error {
	switch controller {
	case cpu:
		return write(path.Join(dir, "cpu.max"), fmt.Sprintf("%d %d", quota(l.CPU), period))
	case memory:
		if err := write(path.Join(dir, "memory.max"), strconv.FormatUint(l.Memory, 10)); err != nil {
			return err
		}
		return optional(write(path.Join(dir, "memory.swap.max"), "0"))
	default:
		return write(path.Join(dir, "pids.max"), strconv.FormatUint(l.Pids, 10))
	}
}

func limitV1(dir, controller string, l Limits) error {
	switch controller {
	case cpu:
		if err := write(path.Join(dir, "cpu.cfs_period_us"), strconv.Itoa(period)); err != nil {
			return err
		}
		return write(path.Join(dir, "cpu.cfs_quota_us"), strconv.FormatInt(quota(l.CPU), 10))
	case memory:
		v := strconv.FormatUint(l.Memory, 10)
		if err := write(path.Join(dir, "memory.limit_in_bytes"), v); err != nil {
			return err
		}
		return optional(write(path.Join(dir, "memory.memsw.limit_in_bytes"), v))
	default:
		return write(path.Join(dir, "pids.max"), strconv.FormatUint(l.Pids, 10))
	}
}

// quota is the CPU time per period; the kernel takes no less than 1 ms.
func quota(cpus float64) int64 { return max(int64(cpus*period), 1000) }

// Tasks are the v1 files that a process writes "0" to in order to join. One
// thread that moves itself needs no system-wide lock in the kernel; moving a
// whole process by its pid waits for one, some 10 ms.
func (g *Group) Tasks() []string {
	var out []string
	for _, dir := range g.V1 {
		out = append(out, path.Join(dir, "tasks"))
	}
	slices.Sort(out)
	return out
}

// OOMKills counts what the kernel killed in the group for memory.
func (g *Group) OOMKills() uint64 {
	if n, ok := field(in(g.V2, "memory.events"), "oom_kill"); ok {
		return n
	}
	n, _ := field(in(g.V1[memory], "memory.oom_control"), "oom_kill")
	return n
}

// Usage is what a group has used; a nil field was not measured.
type Usage struct {
	CPUNanos *uint64
	Memory   *uint64
	Pids     *uint64
}

// Usage reads the group's counters.
func (g *Group) Usage() Usage {
	var u Usage
	if us, ok := field(in(g.V2, "cpu.stat"), "usage_usec"); ok {
		ns := us * 1000
		u.CPUNanos = &ns
	}
	u.Memory = number(in(g.V2, "memory.current"), in(g.V1[memory], "memory.usage_in_bytes"))
	u.Pids = number(in(g.V2, "pids.current"), in(g.V1[pids], "pids.current"))
	return u
}

// in is a file of a group, or a name that no file has when there is no group.
func in(dir, file string) string {
	if dir == "" {
		return ""
	}
	return path.Join(dir, file)
}

// number reads the first of these files that holds one.
func number(files ...string) *uint64 {
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			return &n
		}
	}
	return nil
}

// field reads a number from a file of "name value" lines.
func field(file, name string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if k, v, _ := strings.Cut(line, " "); k == name {
			n, err := strconv.ParseUint(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// writable says why a file could not be written to.
func writable(file string) error {
	if err := unix.Access(file, unix.W_OK); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// optional forgives a control file that this kernel does not have.
func optional(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// short is an error without its path, which differs per cell.
func short(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
