package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// minDisk is the least a file system can be made on.
const minDisk = 4 << 20

// blanks keeps an empty file system of each size, and copies it: what is in it
// is a few blocks.
type blanks struct{ mu sync.Mutex }

// make writes a new disk of a cell.
func (b *blanks) make(ctx context.Context, dir, to string, size uint64) error {
	size = max(size, minDisk) &^ 4095
	name := filepath.Join(dir, strconv.FormatUint(size, 10)+".ext4")
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := os.Stat(name); err != nil {
		if err := mkfs(ctx, dir, name, size); err != nil {
			return err
		}
	}
	return copySparse(to, name)
}

func mkfs(ctx context.Context, dir, name string, size uint64) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tool, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		if tool, err = exec.LookPath("/usr/sbin/mkfs.ext4"); err != nil {
			return plugin.FailedPrecondition("mkfs.ext4 is not installed (Debian: e2fsprogs)")
		}
	}
	next := name + ".new"
	_ = os.Remove(next)
	// No journal: the disk ends with its VM, and a crash of the VM loses no
	// more than a crash of a process would.
	cmd := exec.CommandContext(ctx, tool, "-q", "-F", "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,root_owner=0:0,nodiscard",
		"-m", "0", "-b", "4096", next, strconv.FormatUint(size>>10, 10)+"k")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.Remove(next)
		return errors.Join(ctx.Err(), fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out)))
	}
	return os.Rename(next, name)
}

// copySparse copies the parts of a file that hold data.
func copySparse(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(to)
		}
	}()
	if err := out.Truncate(st.Size()); err != nil {
		return err
	}
	for at := int64(0); at < st.Size(); {
		from, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		buf := make([]byte, 1<<20)
		for from < end {
			n, err := in.ReadAt(buf[:min(int64(len(buf)), end-from)], from)
			if n == 0 {
				return err
			}
			if _, err := out.WriteAt(buf[:n], from); err != nil {
				return err
			}
			from += int64(n)
		}
		at = end
	}
	return nil
}
