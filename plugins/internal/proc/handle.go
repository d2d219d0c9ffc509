package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Handle holds one process by pidfd. A handle is used by one goroutine.
type Handle struct {
	f *os.File
}

// Open opens the process that id names. It answers ErrGone when that process
// is dead, or when its pid means another process now.
func Open(id ID) (*Handle, error) {
	if id.PID <= 1 {
		return nil, ErrGone
	}
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if boot != id.BootID {
		return nil, ErrGone
	}
	// The descriptor comes first: whatever it holds has the pid at this moment.
	// If the ticks then match, it is the process that was meant, since a process
	// that took the pid later would have later ticks.
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil, ErrGone
		}
		return nil, fmt.Errorf("open pid %d: %w", id.PID, err)
	}
	st, err := readStat(id.PID)
	if err == nil && (st.startTicks != id.StartTicks || st.dead()) {
		err = ErrGone
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Handle{f: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Alive says whether the process that id names runs.
func Alive(id ID) (bool, error) {
	h, err := Open(id)
	switch {
	case errors.Is(err, ErrGone):
		return false, nil
	case err != nil:
		return false, err
	}
	defer h.Close()
	return !h.Exited(), nil
}

// Close lets the process go.
func (h *Handle) Close() { _ = h.f.Close() }

// Signal sends a signal; ErrGone when the process has ended.
func (h *Handle) Signal(sig syscall.Signal) error {
	err := h.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// Exited says whether the process has ended. The init of a pid namespace ends
// only when everything in the namespace has.
func (h *Handle) Exited() bool {
	gone := false
	_ = h.control(func(fd int) error {
		gone = readable(fd)
		return nil
	})
	return gone
}

// Wait returns nil when the process has ended, or the context's error.
func (h *Handle) Wait(ctx context.Context) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for a process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = h.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = rc.Read(func(fd uintptr) bool { return readable(int(fd)) })
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ExitStatus asks the kernel how an ended process ended, also when it is no
// child of the caller. ok is false on kernels before 6.15, or when it runs.
func (h *Handle) ExitStatus() (ws syscall.WaitStatus, ok bool) {
	_ = h.control(func(fd int) error {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			ws, ok = syscall.WaitStatus(uint32(info.Exit_code)), true
		}
		return nil
	})
	return ws, ok
}

func (h *Handle) control(f func(fd int) error) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("use a pidfd: %w", err)
	}
	var inner error
	if err := rc.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return fmt.Errorf("use a pidfd: %w", err)
	}
	return inner
}

func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
}
