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

// keptAgents is how many cell agents are remembered.
const keptAgents = 4

// agents remembers which cell agents have been hashed. A change of the file
// makes it be hashed anew, and only its owner can change it, which is checked.
type agents struct {
	mu   sync.Mutex
	good map[string]stamp // by path and sum
}

// stamp changes whenever the content of a file may have.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// check sees that the agent has this sum.
func (a *agents) check(name, sum string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	st, err := os.Stat(name)
	if err != nil {
		return plugin.FailedPrecondition("cell agent: %v", err)
	}
	now, err := stampOf(st)
	if err != nil {
		return plugin.FailedPrecondition("cell agent %s: %v", name, err)
	}
	key := sum + " " + name
	if a.good[key] == now {
		return nil
	}
	got, seen, err := hash(name)
	if err != nil {
		return plugin.FailedPrecondition("cell agent: %v", err)
	}
	if got != sum {
		return plugin.FailedPrecondition("cell agent %s has the SHA-256 %s, not %s", name, got, sum)
	}
	if len(a.good) >= keptAgents || a.good == nil {
		a.good = map[string]stamp{}
	}
	a.good[key] = seen
	return nil
}

// hash reads a program once and sees that it stood still.
func hash(name string) (sum string, seen stamp, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", seen, err
	}
	defer f.Close()
	var stamps [2]stamp
	h := sha256.New()
	for i := range stamps {
		st, err := f.Stat()
		if err != nil {
			return "", seen, err
		}
		if stamps[i], err = stampOf(st); err != nil {
			return "", seen, fmt.Errorf("%s: %w", name, err)
		}
		if i == 0 {
			if _, err := io.Copy(h, f); err != nil {
				return "", seen, fmt.Errorf("read %s: %w", name, err)
			}
		}
	}
	if stamps[0] != stamps[1] {
		return "", seen, fmt.Errorf("%s changed while it was read", name)
	}
	return hex.EncodeToString(h.Sum(nil)), stamps[1], nil
}

// stampOf refuses a file that others than root and the driver's own user may
// change, and one that the engine could not run.
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
