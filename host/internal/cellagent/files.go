package cellagent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// placeFiles writes files, each beside its path and then renamed over it, so
// that nobody sees half of one. Missing directories are made, for the owner of
// the file. The workload may own a directory on the way: a symbolic link there
// is followed only if it is root's or the agent's, so that the workload cannot
// point the agent's write elsewhere.
func placeFiles(files []*cellv1.File) error {
	for _, f := range files {
		if err := placeFile(f); err != nil {
			return fmt.Errorf("place %s: %w", f.GetPath(), err)
		}
	}
	return nil
}

func placeFile(f *cellv1.File) error {
	p := f.GetPath()
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.IndexByte(p, 0) >= 0 {
		return errors.New("not a clean absolute path")
	}
	own := owner{int(f.GetUid()), int(f.GetGid())}
	dir, err := openDir(path.Dir(p), own)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	tmp := "." + path.Base(p) + ".airlock"
	_ = unix.Unlinkat(dir, tmp, 0)
	fd, err := unix.Openat(dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), p)
	_, err = out.Write(f.GetContent())
	if err == nil && own.differs() {
		err = out.Chown(own.uid, own.gid)
	}
	if err == nil && f.GetMode() != 0 {
		err = out.Chmod(os.FileMode(f.GetMode() & 0o777))
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = unix.Renameat(dir, tmp, dir, path.Base(p))
	}
	if err != nil {
		_ = unix.Unlinkat(dir, tmp, 0)
	}
	return err
}

// owner is who files and directories are made for; 0 = the agent's own uid.
type owner struct{ uid, gid int }

func (o owner) differs() bool { return (o.uid != 0 || o.gid != 0) && o.uid != os.Geteuid() }

// maxLinks is how many symbolic links a path may lead over.
const maxLinks = 40

// openDir opens a directory step by step and returns its descriptor.
func openDir(dir string, own owner) (int, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	links := 0
	for todo := strings.Split(dir, "/"); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." {
			continue
		}
		next, target, err := step(at, name, own)
		if target != "" {
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
			todo = append(strings.Split(target, "/"), todo...)
			if next = at; path.IsAbs(target) {
				next, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			}
		}
		if next != at {
			_ = unix.Close(at)
		}
		if err != nil {
			if next == at {
				_ = unix.Close(at)
			}
			return -1, fmt.Errorf("%s: %w", name, err)
		}
		at = next
	}
	return at, nil
}

// step enters one directory, or returns the target of a link that may be
// followed. The directory is made if it is missing.
func step(at int, name string, own owner) (next int, target string, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	next, err = unix.Openat(at, name, flags, 0)
	if err == unix.ENOENT {
		if err = unix.Mkdirat(at, name, 0o755); err == nil && own.differs() {
			err = unix.Fchownat(at, name, own.uid, own.gid, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil && err != unix.EEXIST {
			return -1, "", err
		}
		next, err = unix.Openat(at, name, flags, 0)
	}
	if err != unix.ENOTDIR && err != unix.ELOOP {
		return next, "", err
	}
	var st unix.Stat_t
	if e := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); e != nil {
		return -1, "", e
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return -1, "", unix.ENOTDIR
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return -1, "", errors.New("a symbolic link that somebody else has made")
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil || n == 0 {
		return -1, "", errors.Join(err, unix.ENOENT)
	}
	return -1, string(buf[:n]), nil
}
