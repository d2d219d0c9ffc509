// Package cgroup gives each cell its groups in whatever control group
// hierarchies a machine has: v2, v1, or both side by side. It imports the
// standard library and golang.org/x/sys only. The one idea: limits go to the
// hierarchy that has the controller, and killing and freezing to v2 wherever
// it is mounted, since those need no controller.
package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Controllers of v1 that a cell needs a group in, beside freezer.
const (
	memory  = "memory"
	cpu     = "cpu"
	pids    = "pids"
	freezer = "freezer"
)

// Layout is what a machine has mounted, and where the caller stands in it.
type Layout struct {
	// V2 is where cgroup2 is mounted; empty = nowhere.
	V2 string
	// V1 maps a controller to its mount point.
	V1 map[string]string
	// own maps "" (v2) or a v1 controller to the caller's own directory.
	own map[string]string
}

type mountPoint struct{ root, dir string }

// Detect reads the machine's layout from /proc/self.
func Detect() (Layout, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Layout{}, fmt.Errorf("read mounts: %w", err)
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Layout{}, fmt.Errorf("read own cgroups: %w", err)
	}
	return parse(string(mounts), string(groups)), nil
}

func parse(mountinfo, groups string) Layout {
	l := Layout{V1: map[string]string{}, own: map[string]string{}}
	points := map[string]mountPoint{}
	for sc := bufio.NewScanner(strings.NewReader(mountinfo)); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		point := mountPoint{root: left[3], dir: left[4]}
		switch right[0] {
		case "cgroup2":
			if l.V2 == "" {
				l.V2, points[""] = point.dir, point
			}
		case "cgroup":
			for option := range strings.SplitSeq(right[2], ",") {
				if slices.Contains([]string{memory, cpu, pids, freezer}, option) && l.V1[option] == "" {
					l.V1[option], points[option] = point.dir, point
				}
			}
		}
	}
	for line := range strings.SplitSeq(groups, "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			if p, ok := points[controller]; ok {
				l.own[controller] = within(p, f[2])
			}
		}
	}
	return l
}

// within is where a group lies below its mount point; a group outside of what
// is mounted (a cgroup namespace) counts as the mount point itself.
func within(p mountPoint, group string) string {
	if strings.HasPrefix(group, "/..") { // seen from inside of a namespace
		return p.dir
	}
	rel, err := filepath.Rel(p.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return p.dir
	}
	return path.Join(p.dir, rel)
}

// base is the directory below which a relative parent lies. v1 lets groups
// and processes stand side by side, so cells go below the caller's own group
// and what limits the host limits them too. v2 does not, so there they go
// beside it.
func (l Layout) base(controller string) string {
	own := l.own[controller]
	if controller != "" || own == l.V2 || own == "" {
		return own
	}
	return path.Dir(own)
}
