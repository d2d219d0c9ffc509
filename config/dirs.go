package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// sharedDirs are directories of the machine that a host must not make its own: it
// narrows the mode of its directories and removes what it does not know there.
func sharedDirs() []string {
	return []string{"/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/root", "/run", "/sbin", "/srv",
		"/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share", "/var", "/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool", "/var/tmp"}
}

// ownDir is a directory that the configuration names, and where.
type ownDir struct {
	name, path string // path: with links resolved as far as it exists
	at         hcl.Range
	set        bool
}

// directories refuses directories that cannot be a host's own, and two uses of
// one that would destroy each other's files.
func (b *builder) directories(root *node) {
	c := b.cfg
	dir := func(n *node, attr, name, path string) ownDir {
		return ownDir{name, resolved(path), n.at(attr), n.isSet(attr)}
	}
	plugins := b.section(root, "plugins")
	head := b.section(b.section(root, "governance"), "head")
	data, run := dir(root, "data_dir", "data_dir", c.DataDir), dir(root, "run_dir", "run_dir", c.RunDir)
	own := []*ownDir{&data, &run}
	if r := root.one("retention"); r != nil && c.Retention != nil {
		archive := dir(r, "archive", "retention.archive", c.Retention.Archive)
		own = append(own, &archive)
	}
	for _, d := range own {
		if b.shared(*d) {
			d.path = "" // nothing more is said of it
		}
	}
	b.apart(run, data)
	programs := dir(plugins, "dir", "plugins.dir", c.Plugins.Dir)
	for _, d := range own {
		b.apart(programs, *d)
	}
	if c.Governance.Head.File != "" {
		heads := dir(head, "file", "governance.head.file", filepath.Dir(c.Governance.Head.File))
		heads.name = "the directory of governance.head.file"
		b.outside(heads, run, "what is in run_dir goes with the next start of the machine")
		b.outside(heads, programs, "only programs belong there")
		if heads.path == data.path && heads.path != "" {
			b.clash(heads, data, "are the same directory", "Trusted heads go back in time together with the store there")
		}
	}
	for _, d := range own[2:] {
		b.outside(*d, run, "what is in run_dir goes with the next start of the machine")
		if d.path == data.path && d.path != "" {
			b.clash(*d, data, "are the same directory", "Archived missions would be taken for the store's own files")
		}
	}
}

// shared refuses a directory of the machine's.
func (b *builder) shared(d ownDir) bool {
	proc := under(d.path, "/proc") || under(d.path, "/sys")
	if d.path == "" || !proc && !slices.Contains(sharedDirs(), d.path) {
		return false
	}
	b.error(errorAt(d.at, "Not a directory of its own", "%s: %s belongs to the machine, and the host would change its mode and its files. Give the host a directory of its own, for example %q.",
		d.name, d.path, ownExample(d)))
	return true
}

func ownExample(d ownDir) string {
	switch {
	case d.name == "run_dir":
		return "/run/airlock"
	case strings.HasPrefix(d.name, "retention"):
		return "/var/lib/airlock/archive"
	}
	return "/var/lib/airlock"
}

// apart refuses two directories that are one, or one of which lies in the other.
func (b *builder) apart(x, y ownDir) {
	switch {
	case x.path == "" || y.path == "":
	case x.path == y.path:
		b.clash(x, y, "are the same directory", "Each has files of its own that the other would remove")
	case under(y.path, x.path):
		b.clash(y, x, "lies in it", "Each has files of its own that the other would remove")
	case under(x.path, y.path):
		b.clash(x, y, "lies in it", "Each has files of its own that the other would remove")
	}
}

// outside refuses a directory in, or as, another one.
func (b *builder) outside(x, y ownDir, why string) {
	if x.path != "" && y.path != "" && under(x.path, y.path) {
		b.clash(x, y, "lies in it", strings.ToUpper(why[:1])+why[1:])
	}
}

// clash is told where the reader can change it: at the one that is written.
func (b *builder) clash(x, y ownDir, how, why string) {
	at, what := x, fmt.Sprintf("%s is %s, and %s is %s, which %s", y.name, y.path, x.name, x.path, how)
	if how == "are the same directory" {
		what = fmt.Sprintf("%s and %s %s (%s)", x.name, y.name, how, x.path)
	}
	if !x.set && y.set {
		at = y
	}
	b.error(errorAt(at.at, "Directories that clash", "%s. %s. Give %s another path.", what, why, at.name))
}

// resolved is a path with the links in what exists of it followed.
func resolved(path string) string {
	if path == "" {
		return ""
	}
	path = filepath.Clean(path)
	for at, rest := path, ""; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
		at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest)
	}
}
