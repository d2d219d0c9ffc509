package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxImage bounds an executable: it is held in memory.
const maxImage = 512 << 20

// image is an executable as it was when it was checked: a sealed copy in
// memory that nobody can change, so that what was hashed is what runs,
// whatever happens to the file.
type image struct {
	found  Found
	sum    string
	script bool // begins with #!: the interpreter opens the copy by its descriptor
	stamp  stamp
	file   *os.File
	uses   int // guarded by images.mu
}

// stamp tells whether a file is still the one that was copied.
type stamp struct {
	dev, ino          uint64
	size              int64
	modified, changed syscall.Timespec
	mode, uid, gid    uint32
}

func stampOf(info os.FileInfo) stamp {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{
		dev: s.Dev, ino: s.Ino, size: s.Size, modified: s.Mtim, changed: s.Ctim,
		mode: s.Mode, uid: s.Uid, gid: s.Gid,
	}
}

// images shares copies between instances of one driver.
type images struct {
	mu   sync.Mutex
	held map[string]*image // by path
}

// acquire gives the copy of a file as it is now; release it.
func (s *images) acquire(found Found) (*image, *Fault) {
	if fault := safeFile(found.Path); fault != nil {
		return nil, fault
	}
	f, err := openFile(found.Path)
	if err != nil {
		return nil, faultf(NotExecutable, "%v", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, faultf(NotExecutable, "%v", err)
	}
	if fault := runnable(found.Path, info); fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.held[found.Path]; ok && held.stamp == stampOf(info) {
		held.uses++
		return held, nil
	}
	made, fault := copyImage(found, f, info)
	if fault != nil {
		return nil, fault
	}
	made.uses = 1
	if s.held == nil {
		s.held = make(map[string]*image)
	}
	s.held[found.Path] = made
	return made, nil
}

func (s *images) release(i *image) {
	if i == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.uses--; i.uses > 0 {
		return
	}
	_ = i.file.Close()
	if s.held[i.found.Path] == i {
		delete(s.held, i.found.Path)
	}
}

// openFile opens a file to read it and does not wait for a pipe's other end.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func runnable(path string, info os.FileInfo) *Fault {
	// Again on the open file: the checks by path could have seen another one.
	if fault := safeInfo(path, info, os.Geteuid(), os.Getegid()); fault != nil {
		return fault
	}
	switch {
	case !info.Mode().IsRegular():
		return faultf(NotExecutable, "%s is not a file (mode %s)", path, info.Mode())
	case info.Mode().Perm()&0o111 == 0:
		return faultf(NotExecutable, "%s is not executable (mode %s)", path, info.Mode()).advise("chmod 0755 it")
	case info.Size() > maxImage:
		return faultf(NotExecutable, "%s has %d bytes, more than a plugin may have", path, info.Size())
	}
	return nil
}

func copyImage(found Found, from *os.File, info os.FileInfo) (*image, *Fault) {
	first := make(head, 64)
	n, err := io.ReadFull(io.NewSectionReader(from, 0, 64), first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, faultf(NotExecutable, "%v", err)
	}
	first = first[:n]
	if fault := first.check(found.Path); fault != nil {
		return nil, fault
	}
	memory, err := memfd(found.File)
	if err != nil {
		return nil, faultf(HostTrouble, "no memory file for %s: %v", found.File, err).retry()
	}
	hash := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{memory}, io.TeeReader(io.LimitReader(from, maxImage), hash), make([]byte, 1<<20)); err != nil {
		_ = memory.Close()
		return nil, faultf(HostTrouble, "%s cannot be copied: %v", found.Path, err).retry()
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		_ = memory.Close()
		return nil, faultf(HostTrouble, "the copy of %s cannot be sealed: %v", found.Path, err).retry()
	}
	return &image{
		found: found, file: memory, script: first.script(), stamp: stampOf(info),
		sum: hex.EncodeToString(hash.Sum(nil)),
	}, nil
}

// memfd asks for an executable memory file; kernels before 6.3 do not know the
// word for that and make every one executable.
func memfd(name string) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
