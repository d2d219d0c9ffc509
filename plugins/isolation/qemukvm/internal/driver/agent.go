package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/airlock-host/airlock/sdk/plugin"
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
}

// stamp changes whenever the content of a file may have.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// open returns the agent with this sum. The file is shared and stays open.
func (im *images) open(name, sum string) (*os.File, error) {
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
		return have.file, nil
	}
	got, err := hash(name)
	if err != nil {
		return nil, plugin.FailedPrecondition("cell agent: %v", err)
	}
	if got.sum != sum {
		_ = got.file.Close()
		return nil, plugin.FailedPrecondition("cell agent %s has the SHA-256 %s, not %s", name, got.sum, sum)
	}
	im.keep(sum, &image{got.file, got.seen})
	return got.file, nil
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

type hashed struct {
	file *os.File
	seen stamp
	sum  string
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
	if _, err := io.Copy(sum, f); err != nil {
		return h, fmt.Errorf("read %s: %w", name, err)
	}
	after, err := stampOfFile(f)
	if err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	if before != after {
		return h, fmt.Errorf("%s changed while it was read", name)
	}
	return hashed{f, after, hex.EncodeToString(sum.Sum(nil))}, nil
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
