package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process names a process so that a pid that was used again is not taken for
// it.
type Process struct {
	PID   int    `json:"pid"`
	Ticks uint64 `json:"ticks"` // when it was started, in clock ticks since boot
	Boot  string `json:"boot"`  // the kernel's boot id
}

// Identify names a process that runs now.
func Identify(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Ticks: st.ticks, Boot: strings.TrimSpace(string(boot))}, nil
}

// Alive says whether this very process runs; one that has ended and was not
// reaped does not.
func (p Process) Alive() bool {
	if p.PID <= 1 {
		return false
	}
	now, err := Identify(p.PID)
	if err != nil || now != p {
		return false
	}
	st, err := readStat(p.PID)
	return err == nil && !st.dead()
}

// Signal sends a signal to this very process. One that is gone is no error.
func (p Process) Signal(sig syscall.Signal) error {
	fd, err := p.open()
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// open is a descriptor of the process; -1 without an error when it is gone.
func (p Process) open() (int, error) {
	if p.PID <= 1 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	if !p.Alive() { // asked after the open: the descriptor is of whom we asked about
		_ = unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// Wait returns nil when the process has ended.
func (p Process) Wait(ctx context.Context) error {
	for p.Alive() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended: %w", p.PID, ctx.Err())
		}
	}
	return nil
}

type stat struct {
	state   byte
	ppid    int
	cpu     uint64 // ticks of it and of the children that it has waited for
	threads uint64
	ticks   uint64
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return stat{}, errors.New("its stat cannot be read")
	}
	number := func(i int) (n uint64) { n, _ = strconv.ParseUint(f[i], 10, 64); return n }
	s := stat{state: f[0][0], threads: number(17), ticks: number(19)}
	s.ppid = int(number(1))
	for i := 11; i <= 14; i++ {
		s.cpu += number(i)
	}
	return s, nil
}
