package cells

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/result"
)

// Fill copies what a mission works on into its cell's workspace, once the cell
// is the mission's: a cell that waits for one has an empty workspace. It must
// be called before anything of the mission runs, and does nothing for a
// workspace that is no copy or is filled already.
func (m *Manager) Fill(ctx context.Context, c *Cell) error {
	if c.Spec.Workspace.Mode != "copy" {
		return nil
	}
	if _, err := os.Stat(m.baseline(c)); err == nil {
		return nil
	}
	source := c.Spec.Workspace.Source
	if within(m.volumesDir(), source) || within(source, m.volumesDir()) {
		return fmt.Errorf("workspace source %s holds the host's own volumes (%s): copying it would copy itself", source, m.volumesDir())
	}
	if st, err := os.Stat(source); err != nil || !st.IsDir() {
		return fmt.Errorf("copy the workspace: the source %s is no directory that can be read", source)
	}
	if err := m.makeVolume(c); err != nil {
		return err
	}
	if err := copyTree(ctx, source, m.volumeDir(c), m.baseline(c), c.UID); err != nil {
		return fmt.Errorf("copy the workspace %s: %w", source, err)
	}
	return nil
}

// copier copies one tree.
type copier struct {
	root *os.Root
	uid  int // -1: the host's own
	base *result.Baseline
	dirs []result.Entry // whose modes are set last
	mem  []byte
}

// copyTree copies a tree and writes down what was copied. Symlinks are copied as
// they are and never followed; sockets, FIFOs, devices, setuid bits and owners
// stay behind. What cannot be read is an error: half a copy is nobody's work.
func copyTree(ctx context.Context, from, to, baseline string, uid uint32) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	base, err := result.NewBaseline(baseline)
	if err != nil {
		return err
	}
	c := &copier{root: root, uid: -1, base: base, mem: make([]byte, 256<<10)}
	if uid != 0 {
		c.uid = int(uid)
	}
	var missed error
	walk := result.Walk{
		Visit: func(d *result.Directory, name string, e result.Entry) error {
			if missed != nil {
				return missed
			}
			return c.one(ctx, d, name, e)
		},
		Missed: func(path string, why error) { missed = errors.Join(missed, fmt.Errorf("%s: %w", path, why)) },
	}
	err = errors.Join(walk.Tree(ctx, from), missed)
	if err == nil {
		err = c.finish()
	}
	if err != nil {
		base.Abandon()
		return err
	}
	return base.Close()
}

func (c *copier) one(ctx context.Context, d *result.Directory, name string, e result.Entry) error {
	switch e.Type {
	case result.Dir:
		c.dirs = append(c.dirs, e)
		return c.root.Mkdir(e.Path, 0o700)
	case result.Symlink:
		if err := c.root.Symlink(e.Link, e.Path); err != nil {
			return err
		}
		if c.uid >= 0 {
			if err := c.root.Lchown(e.Path, c.uid, c.uid); err != nil {
				return err
			}
		}
		return c.base.Add(e)
	case result.File:
		now, err := c.file(ctx, d, name, e)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
		return c.base.Add(now)
	default:
		return nil
	}
}

// file copies a regular file and gives what it is at its new place.
func (c *copier) file(ctx context.Context, d *result.Directory, name string, e result.Entry) (result.Entry, error) {
	in, err := d.Open(name, e)
	if err != nil {
		return e, err
	}
	defer in.Close()
	out, err := c.root.OpenFile(e.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return e, err
	}
	defer out.Close()
	if err := c.content(ctx, in, out, e); err != nil {
		return e, err
	}
	if c.uid >= 0 {
		if err := out.Chown(c.uid, c.uid); err != nil {
			return e, err
		}
	}
	if err := unix.Fchmod(int(out.Fd()), e.Mode&0o777); err != nil {
		return e, err
	}
	// Builds go by the times of files.
	when := unix.NsecToTimespec(e.Mtime)
	if err := unix.UtimesNanoAt(int(out.Fd()), "", []unix.Timespec{when, when}, unix.AT_EMPTY_PATH); err != nil {
		tv := time.Unix(0, e.Mtime) // kernels before 5.8 know no empty path here
		if err := c.root.Chtimes(e.Path, tv, tv); err != nil {
			return e, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &st); err != nil {
		return e, err
	}
	return result.EntryOf(e.Path, &st), nil
}

// content copies bytes: by sharing the blocks where the file system can, else
// only what is no hole.
func (c *copier) content(ctx context.Context, in, out *os.File, e result.Entry) error {
	if e.Size == 0 || unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	if e.Bytes >= e.Size {
		return c.span(ctx, in, out, e.Size)
	}
	if err := out.Truncate(e.Size); err != nil {
		return err
	}
	for at := int64(0); at < e.Size; {
		data, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := in.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		hole = min(hole, e.Size)
		if data >= hole {
			return nil
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if err := c.span(ctx, in, out, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

// span copies n bytes, in the kernel where it can, and looks at the context
// now and then.
func (c *copier) span(ctx context.Context, in, out *os.File, n int64) error {
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := io.CopyBuffer(out, io.LimitReader(in, min(n, 64<<20)), c.mem)
		if err != nil {
			return err
		}
		if got == 0 {
			return nil // it has become shorter
		}
		n -= got
	}
	return nil
}

// finish sets what directories must not have while they are filled.
func (c *copier) finish() error {
	for _, e := range slices.Backward(c.dirs) {
		if c.uid >= 0 {
			if err := c.root.Lchown(e.Path, c.uid, c.uid); err != nil {
				return err
			}
		}
		mode := e.Mode & 0o777
		if err := c.root.Chmod(e.Path, os.FileMode(mode)); err != nil {
			return err
		}
		e.Mode = mode
		if err := c.base.Add(e); err != nil {
			return err
		}
	}
	return nil
}
