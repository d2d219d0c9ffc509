package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ErrGone says that a process does not exist any more: never started, dead, a
// zombie, another program under its pid, or from before a reboot.
var ErrGone = errors.New("process is gone")

// ID is the identity of a process.
type ID struct {
	// PID in the pid namespace of the driver.
	PID int `json:"pid"`
	// StartTicks is field 22 of /proc/PID/stat: clock ticks since boot.
	StartTicks uint64 `json:"start_ticks"`
	// BootID is /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id"`
}

// BootID reads the id of this boot of the machine.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Identify reads the identity of a process that lives now or is a zombie.
func Identify(pid int) (ID, error) {
	boot, err := BootID()
	if err != nil {
		return ID{}, err
	}
	st, err := readStat(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, StartTicks: st.startTicks, BootID: boot}, nil
}

// stat is what is used of /proc/PID/stat.
type stat struct {
	state      byte
	ppid       int
	startTicks uint64
}

// dead says that the process runs nothing any more; PID 1 may reap it late.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// readStat answers ErrGone when there is no such process.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		// ESRCH: it went away between open and read.
		if errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "no such process") {
			return stat{}, ErrGone
		}
		return stat{}, fmt.Errorf("read stat of pid %d: %w", pid, err)
	}
	// The second field is the name in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 || i+2 >= len(b) {
		return stat{}, fmt.Errorf("stat of pid %d has no name field", pid)
	}
	f := strings.Fields(string(b[i+2:]))
	if len(f) < 20 {
		return stat{}, fmt.Errorf("stat of pid %d has %d fields", pid, len(f))
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return stat{}, fmt.Errorf("stat of pid %d: parent: %w", pid, err)
	}
	ticks, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat of pid %d: start ticks: %w", pid, err)
	}
	return stat{state: f[0][0], ppid: ppid, startTicks: ticks}, nil
}
