package result

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Entry is one path of a tree as it lies there.
type Entry struct {
	Path  string // relative to the root, with slashes
	Type  Type
	Mode  uint32 // permission bits, setuid, setgid and sticky
	Size  int64
	Mtime int64 // nanoseconds
	Ctime int64 // nanoseconds; no process can set it
	Ino   uint64
	UID   uint32
	Links uint64
	Bytes int64 // that it takes on the disk
	Link  string
}

// Same says that nothing of a path has changed since an entry of it was made.
func (e Entry) Same(now Entry) bool {
	switch {
	case e.Type != now.Type || e.Mode != now.Mode:
		return false
	case e.Type == Dir:
		return true // what lies in it speaks for itself
	case e.Type == Symlink:
		return e.Link == now.Link
	}
	return e.Size == now.Size && e.Mtime == now.Mtime && e.Ctime == now.Ctime && e.Ino == now.Ino
}

// EntryOf makes an entry of what the kernel says.
func EntryOf(path string, st *unix.Stat_t) Entry {
	e := Entry{Path: path, Mode: st.Mode & 0o7777, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
		Ino: st.Ino, UID: st.Uid, Links: st.Nlink, Bytes: st.Blocks * 512}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = File
	case unix.S_IFDIR:
		e.Type, e.Size = Dir, 0
	case unix.S_IFLNK:
		e.Type, e.Mode = Symlink, 0o777
	case unix.S_IFIFO:
		e.Type = FIFO
	case unix.S_IFSOCK:
		e.Type = Socket
	default:
		e.Type = Device
	}
	return e
}

// Walk goes through a tree, each directory in the order of names.
type Walk struct {
	// Visit sees every path but the root, a directory before what is in it.
	// SkipDir leaves a directory out.
	Visit func(d *Directory, name string, e Entry) error
	// Missed is told of what could not be looked at, and everything below it.
	Missed func(path string, why error)
	Depth  int // of directories at most
}

// SkipDir is what Visit returns to leave a directory out.
var SkipDir = errors.New("skip this directory") //nolint:staticcheck // a signal, as fs.SkipDir is

// Directory is an open directory of a walk.
type Directory struct {
	f   *os.File
	dev uint64
}

// Open opens a regular file of the directory for reading; never another thing
// that has taken its place.
func (d *Directory) Open(name string, e Entry) (*os.File, error) {
	f, err := d.open(name, unix.O_NONBLOCK) // a FIFO would wait for a writer
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != e.Ino {
		_ = f.Close()
		return nil, errors.Join(fmt.Errorf("%s changed while it was opened", e.Path), err)
	}
	return f, nil
}

func (d *Directory) open(name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(d.f.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// stat looks at a name without following it.
func (d *Directory) stat(name, path string) (Entry, uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, 0, err
	}
	e := EntryOf(path, &st)
	if e.Type == Symlink {
		buf := make([]byte, 4097)
		n, err := unix.Readlinkat(int(d.f.Fd()), name, buf)
		if err != nil {
			return Entry{}, 0, err
		}
		e.Link, e.Size = string(buf[:n]), int64(n)
	}
	return e, st.Dev, nil
}

// Tree walks the tree below a directory. The root itself may be reached through
// symlinks; nothing below it is.
func (w Walk) Tree(ctx context.Context, root string) error {
	f, err := os.Open(root)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return errors.Join(err, f.Close())
	}
	return w.dir(ctx, &Directory{f: f, dev: st.Dev}, "", 1)
}

// dir walks one directory and closes it.
func (w Walk) dir(ctx context.Context, d *Directory, path string, depth int) error {
	defer func() { _ = d.f.Close() }()
	names, err := d.f.Readdirnames(-1)
	if err != nil {
		w.Missed(path, err)
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		below := name
		if path != "" {
			below = path + "/" + name
		}
		e, dev, err := d.stat(name, below)
		switch {
		case errors.Is(err, unix.ENOENT): // gone meanwhile
			continue
		case err != nil:
			w.Missed(below, err)
			continue
		case dev != d.dev:
			w.Missed(below, errors.New("it is on another file system"))
			continue
		}
		err = w.Visit(d, name, e)
		if errors.Is(err, SkipDir) {
			continue
		}
		if err != nil {
			return err
		}
		if e.Type == Dir {
			if err := w.enter(ctx, d, name, below, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Walk) enter(ctx context.Context, d *Directory, name, path string, depth int) error {
	if w.Depth > 0 && depth >= w.Depth {
		w.Missed(path, fmt.Errorf("it is deeper than %d directories", w.Depth))
		return nil
	}
	sub, err := d.open(name, unix.O_DIRECTORY)
	if err != nil {
		w.Missed(path, err)
		return nil
	}
	return w.dir(ctx, &Directory{f: sub, dev: d.dev}, path, depth+1)
}
