package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// Parent is the group below which an instance's cells have theirs.
type Parent struct {
	layout Layout
	name   string

	once    sync.Once
	dirs    map[string]string // "" (v2) or a v1 controller: its directory
	v2      []string          // controllers that v2 gives to cells
	missing map[string]string // controller: why it cannot be used
}

// NewParent names the parent. A name that begins with a slash counts from the
// root of each hierarchy, any other from the caller's place in it. Nothing is
// made before it is needed.
func NewParent(l Layout, name string) *Parent { return &Parent{layout: l, name: name} }

// prepare makes the parent in every hierarchy that allows it.
func (p *Parent) prepare() {
	p.once.Do(func() {
		p.dirs, p.missing = map[string]string{}, map[string]string{}
		why := "no cgroup2 is mounted"
		if p.layout.V2 != "" {
			if err := p.prepareV2(); err != nil {
				why = err.Error()
			}
		}
		p.missing[""] = why
		for _, c := range []string{memory, cpu, pids, freezer} {
			if slices.Contains(p.v2, c) || c == freezer && p.dirs[""] != "" {
				continue
			}
			p.prepareV1(c, why)
		}
	})
}

func (p *Parent) dir(controller string) string {
	if strings.HasPrefix(p.name, "/") {
		root := p.layout.V2
		if controller != "" {
			root = p.layout.V1[controller]
		}
		return path.Join(root, p.name)
	}
	return path.Join(p.layout.base(controller), p.name)
}

func (p *Parent) prepareV2() error {
	dir := p.dir("")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return short(err)
	}
	// A directory that can be made is not yet one that cells can be started in.
	if err := writable(path.Join(dir, "cgroup.procs")); err != nil {
		return short(err)
	}
	p.dirs[""] = dir
	p.handDown(dir)
	got, err := os.ReadFile(path.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return short(err)
	}
	p.v2 = strings.Fields(string(got))
	return nil
}

// handDown has each level hand its controllers down to a v2 directory; a refusal
// shows in what the last one offers.
func (p *Parent) handDown(dir string) {
	for level := p.layout.V2; ; {
		for _, c := range []string{memory, cpu, pids} {
			_ = write(path.Join(level, "cgroup.subtree_control"), "+"+c)
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(dir, level), "/")
		if rest == "" {
			break
		}
		next, _, _ := strings.Cut(rest, "/")
		level = path.Join(level, next)
	}
}

// remake makes a parent again that was there before.
func (p *Parent) remake(controller, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if controller == "" {
		p.handDown(dir)
	}
	return nil
}

func (p *Parent) prepareV1(controller, whyNotV2 string) {
	if p.layout.V1[controller] == "" {
		p.missing[controller] = "no " + controller + " controller (v2: " + whyNotV2 + ")"
		if p.dirs[""] != "" {
			p.missing[controller] = "no " + controller + " controller in cgroup v1 or v2"
		}
		return
	}
	dir := p.dir(controller)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = writable(path.Join(dir, "tasks"))
	}
	if err != nil {
		p.missing[controller] = "cgroup v1 " + controller + ": " + short(err).Error()
		return
	}
	p.dirs[controller] = dir
}

// Support says for cpu, memory and pids how a limit would be enforced:
// "enforced-by:cgroup-v2", "enforced-by:cgroup-v1" or "not-enforced:REASON".
func (p *Parent) Support() map[string]string {
	p.prepare()
	out := map[string]string{}
	for _, c := range []string{cpu, memory, pids} {
		switch {
		case slices.Contains(p.v2, c):
			out[c] = "enforced-by:cgroup-v2"
		case p.dirs[c] != "":
			out[c] = "enforced-by:cgroup-v1"
		default:
			out[c] = "not-enforced:" + p.missing[c]
		}
	}
	return out
}

// Refuse takes every hierarchy out of use, for a reason that was found by
// trying it.
func (p *Parent) Refuse(why string) {
	p.prepare()
	p.dirs, p.v2 = map[string]string{}, nil
	for _, c := range []string{cpu, memory, pids} {
		p.missing[c] = why
	}
}

// Contains says whether a directory lies in a hierarchy of this machine.
func (p *Parent) Contains(dir string) bool {
	if p.layout.V2 != "" && strings.HasPrefix(dir, p.layout.V2+"/") {
		return true
	}
	for _, mount := range p.layout.V1 {
		if strings.HasPrefix(dir, mount+"/") {
			return true
		}
	}
	return false
}

// Find collects the groups of a name that exist, whoever made them; nil when
// there are none.
func (p *Parent) Find(name string) *Group {
	g := &Group{V1: map[string]string{}}
	if p.layout.V2 != "" {
		if dir := path.Join(p.dir(""), name); exists(dir) {
			g.V2 = dir
		}
	}
	for c := range p.layout.V1 {
		if dir := path.Join(p.dir(c), name); exists(dir) {
			g.V1[c] = dir
		}
	}
	if g.V2 == "" && len(g.V1) == 0 {
		return nil
	}
	return g
}

// Names lists every group below the parent, in any hierarchy.
func (p *Parent) Names() ([]string, error) {
	var out []string
	dirs := []string{}
	if p.layout.V2 != "" {
		dirs = append(dirs, p.dir(""))
	}
	for c := range p.layout.V1 {
		dirs = append(dirs, p.dir(c))
	}
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				out = append(out, e.Name())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func exists(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}

// Tidy removes what NewParent's name stands for where no cell is left in it.
func (p *Parent) Tidy() {
	roots := map[string]string{"": p.layout.V2}
	for c, dir := range p.layout.V1 {
		roots[c] = dir
	}
	for c, root := range roots {
		if root == "" {
			continue
		}
		// Below the last group that carries our name; rmdir refuses a group in use.
		dir := p.dir(c)
		for range strings.Count(strings.Trim(p.name, "/"), "/") + 1 {
			if os.Remove(dir) != nil {
				break
			}
			dir = path.Dir(dir)
		}
	}
}
