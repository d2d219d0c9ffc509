package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/stage"
)

// keptImages is how many versions of the cell agent stay open.
const keptImages = 2

// images holds cell agents open, by their SHA-256, so that a start need not
// hash one again. The program is not copied: all cells share one file's
// memory. That is safe as long as nobody but its owner can write to it, which
// is checked, and a change of the file makes it be hashed anew.
type images struct {
	mu    sync.Mutex
	files map[string]*image
	order []string
}

type image struct {
	file *os.File
	seen stamp

	// stage is the same file on a read-only mount of its own, to start it as its
	// own stage; nil = it cannot be one, or there is no such mount.
	stage *os.File
}

// stamp changes whenever the content of a file may have.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// open returns the agent with this sum. Its files are shared and stay open.
func (im *images) open(name, sum string) (*image, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	st, err := os.Stat(name)
	if err != nil {
		return nil, plugin.FailedPrecondition("cell agent: %v", err)
	}
	now, err := stampOf(st)
	if err != nil {
		return nil, plugin.FailedPrecondition("cell agent %s: %v", name, err)
	}
	if have := im.files[sum]; have != nil && have.seen == now {
		return have, nil
	}
	got, err := hash(name)
	if err != nil {
		return nil, plugin.FailedPrecondition("cell agent: %v", err)
	}
	if got.sum != sum {
		_ = got.file.Close()
		return nil, plugin.FailedPrecondition("cell agent %s has the SHA-256 %s, not %s", name, got.sum, sum)
	}
	i := &image{file: got.file, seen: got.seen}
	if got.stage {
		i.stage = onReadOnlyMount(got.file)
	}
	im.keep(sum, i)
	return i, nil
}

func (im *images) keep(sum string, i *image) {
	if im.files == nil {
		im.files = map[string]*image{}
	}
	if im.files[sum] == nil {
		if len(im.order) == keptImages {
			// Not closed here: a start may be using it. The file closes itself
			// when nobody does.
			delete(im.files, im.order[0])
			im.order = im.order[1:]
		}
		im.order = append(im.order, sum)
	}
	im.files[sum] = i
}

// onReadOnlyMount opens a file anew on a mount that nobody can write through:
// a process that was started from it offers it in /proc as its program. nil
// where the kernel or a want of rights does not allow it.
func onReadOnlyMount(f *os.File) *os.File {
	tree, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil
	}
	defer unix.Close(tree)
	protect := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &protect) != nil {
		return nil
	}
	// By /proc, since an empty path cannot be opened for reading.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(tree), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

type hashed struct {
	file  *os.File
	seen  stamp
	sum   string
	stage bool // it can be its own stage
}

// hash opens a program and reads it once, and sees that it stood still.
func hash(name string) (h hashed, err error) {
	f, err := os.Open(name)
	if err != nil {
		return h, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	before, err := stampOfFile(f)
	if err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.New()
	var look search
	if _, err := io.Copy(io.MultiWriter(sum, &look), f); err != nil {
		return h, fmt.Errorf("read %s: %w", name, err)
	}
	after, err := stampOfFile(f)
	if err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	if before != after {
		return h, fmt.Errorf("%s changed while it was read", name)
	}
	return hashed{f, after, hex.EncodeToString(sum.Sum(nil)), look.found}, nil
}

// search looks for what says that a program can be its own stage.
type search struct {
	found bool
	last  []byte // the end of what was seen, where it may begin
}

func (s *search) Write(b []byte) (int, error) {
	if !s.found {
		part := append(s.last, b...)
		s.found = stage.Knows(part)
		s.last = slices.Clone(part[max(0, len(part)-len(stage.AgentArgument)):])
	}
	return len(b), nil
}

func stampOfFile(f *os.File) (stamp, error) {
	st, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stampOf(st)
}

// stampOf refuses a file that others than root and the driver's own user may
// change.
func stampOf(st os.FileInfo) (stamp, error) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !st.Mode().IsRegular():
		return stamp{}, fmt.Errorf("it is no regular file")
	case st.Mode().Perm()&0o022 != 0:
		return stamp{}, fmt.Errorf("its group or others may write to it (mode %04o)", st.Mode().Perm())
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		return stamp{}, fmt.Errorf("it belongs to uid %d", sys.Uid)
	}
	return stamp{sys.Dev, sys.Ino, sys.Size, sys.Mtim, sys.Ctim}, nil
}
