package cellagent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// public is the directory in which the workload finds what it may use of the
// agent: ask.sock, and bin/airlock-cell to speak to it.
//
// The program has to be reachable for a uid that may not enter the directory
// the agent itself lies in, and /proc/PID/exe of the agent is not, for the
// agent is not dumpable. So bin/airlock-cell is a symbolic link where every
// directory on the way is open to all, else a copy, which on file systems that
// can share extents costs nothing.
type public struct {
	dir  string
	made bool // by the agent, which removes it
}

const programName = "airlock-cell"

func newPublic(dir, program string) (*public, error) {
	p := &public{dir: dir}
	if dir == "" {
		for _, base := range []string{"/run", os.TempDir(), "/dev/shm"} {
			d, err := os.MkdirTemp(base, "airlock-cell-")
			if err == nil {
				p.dir, p.made = d, true
				break
			}
		}
		if p.dir == "" {
			return nil, fmt.Errorf("no directory can be made under /run, %s or /dev/shm; give one with --public-dir", os.TempDir())
		}
	}
	if err := p.fill(program); err != nil {
		p.remove()
		return nil, fmt.Errorf("public directory: %w", err)
	}
	return p, nil
}

func (p *public) fill(program string) error {
	for _, d := range []string{p.dir, p.binDir()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(d, 0o755); err != nil {
			return err
		}
	}
	_ = os.Remove(p.program())
	if program == "" {
		program, _ = os.Readlink("/proc/self/exe") // an empty path is not open to all
	}
	if openToAll(program) {
		return os.Symlink(program, p.program())
	}
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(p.program(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// openToAll says whether everybody can reach and run a program, and nobody can
// exchange it.
func openToAll(path string) bool {
	for p := path; ; p = filepath.Dir(p) {
		fi, err := os.Lstat(p)
		if err != nil || fi.Mode()&0o001 == 0 || (p == path && (!fi.Mode().IsRegular() || fi.Mode()&0o004 == 0)) {
			return false
		}
		if p == "/" {
			return !strings.HasSuffix(path, " (deleted)")
		}
	}
}

func (p *public) binDir() string    { return filepath.Join(p.dir, "bin") }
func (p *public) program() string   { return filepath.Join(p.binDir(), programName) }
func (p *public) askSocket() string { return filepath.Join(p.dir, "ask.sock") }

// remove takes away what the agent has made.
func (p *public) remove() {
	_ = os.Remove(p.askSocket())
	_ = os.Remove(p.program())
	_ = os.Remove(p.binDir())
	if p.made {
		_ = os.Remove(p.dir)
	}
}
