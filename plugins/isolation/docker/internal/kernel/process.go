package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone says that a process does not exist any more: dead, a zombie, another
// program under its pid, or from before a reboot.
var ErrGone = errors.New("process is gone")

// Process is the identity of a process.
type Process struct {
	// PID in the pid namespace of the driver; 0 = none.
	PID int `json:"pid,omitempty"`
	// Start is field 22 of /proc/PID/stat: clock ticks since boot.
	Start uint64 `json:"start,omitempty"`
	// Boot is /proc/sys/kernel/random/boot_id.
	Boot string `json:"boot,omitempty"`
}

// BootID reads the id of this boot of the machine.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Identify reads the identity of a process that lives now.
func Identify(pid int) (Process, error) {
	boot, err := BootID()
	if err != nil {
		return Process{}, err
	}
	_, start, err := stat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start, Boot: boot}, nil
}

// stat reads state and start time; ErrGone when there is no such process.
func stat(pid int) (state byte, start uint64, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, 0, ErrGone
	}
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may hold anything.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return 0, 0, fmt.Errorf("/proc/%d/stat cannot be read: %q", pid, b)
	}
	start, err = strconv.ParseUint(string(f[19]), 10, 64)
	return f[0][0], start, err
}

// Alive says whether this very process runs.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	if boot, err := BootID(); err != nil || boot != p.Boot {
		return false
	}
	state, start, err := stat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// Kill sends SIGKILL to this very process; ErrGone when it is dead.
func (p Process) Kill() error {
	if !p.Alive() {
		return ErrGone
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("open pid %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	// The descriptor holds on to whoever has the pid now; that it is still the
	// same one is seen once more.
	if !p.Alive() {
		return ErrGone
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); errors.Is(err, unix.ESRCH) {
		return ErrGone
	} else if err != nil {
		return fmt.Errorf("kill pid %d: %w", p.PID, err)
	}
	return nil
}

// Wait returns when the process is gone.
func (p Process) Wait(ctx context.Context) error {
	return until(ctx, func() (bool, error) { return !p.Alive(), nil })
}
