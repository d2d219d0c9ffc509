package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// keptImages is how many versions of the cell agent stay ready.
const keptImages = 2

// images holds cell agents in sealed memory, by their SHA-256: what was hashed
// is what runs, whatever happens to the file.
type images struct {
	mu    sync.Mutex
	files map[string]*os.File
	order []string
}

// open returns the agent with this sum. The file is shared and stays open.
func (im *images) open(name, sum string) (*os.File, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if f := im.files[sum]; f != nil {
		return f, nil
	}
	f, got, err := seal(name)
	if err != nil {
		return nil, plugin.FailedPrecondition("cell agent: %v", err)
	}
	if got != sum {
		_ = f.Close()
		return nil, plugin.FailedPrecondition("cell agent %s has the SHA-256 %s, not %s", name, got, sum)
	}
	if im.files == nil {
		im.files = map[string]*os.File{}
	}
	if len(im.order) == keptImages {
		// Not closed here: a start may be using it. The file closes itself when
		// nobody does.
		delete(im.files, im.order[0])
		im.order = im.order[1:]
	}
	im.files[sum], im.order = f, append(im.order, sum)
	return f, nil
}

// seal copies a file into memory that cannot be changed, and hashes it.
func seal(name string) (f *os.File, sum string, err error) {
	src, err := os.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer src.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("airlock-cell", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate("airlock-cell", flags)
	}
	if err != nil {
		return nil, "", fmt.Errorf("make memory for %s: %w", name, err)
	}
	f = os.NewFile(uintptr(fd), "airlock-cell")
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), src); err != nil {
		return nil, "", fmt.Errorf("copy %s: %w", name, err)
	}
	if err := unix.Fchmod(fd, 0o755); err != nil {
		return nil, "", fmt.Errorf("make %s executable: %w", name, err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, "", fmt.Errorf("seal %s: %w", name, err)
	}
	return f, hex.EncodeToString(h.Sum(nil)), nil
}
