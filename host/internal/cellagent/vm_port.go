package cellagent

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// vmPort is a virtio-serial port. It outlives whoever is connected at the host:
// Read ends with io.EOF once when that one goes, and waits for the next one
// after that. A Write to nobody fails.
type vmPort struct {
	f    *os.File
	raw  syscall.RawConn
	peer bool // somebody is connected, as far as Read has seen
}

// findPort opens the port of this name, as soon as the kernel shows it.
func findPort(name string) (*vmPort, error) {
	dir, err := await(func() (string, error) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == name {
				return filepath.Base(filepath.Dir(n)), nil
			}
		}
		return "", os.ErrNotExist
	})
	if err != nil {
		return nil, err
	}
	return openPort(filepath.Join("/dev", dir))
}

func openPort(path string) (*vmPort, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return newPort(f)
}

func newPort(f *os.File) (*vmPort, error) {
	raw, err := f.SyscallConn()
	return &vmPort{f: f, raw: raw}, err
}

// Read is called by one goroutine at a time.
func (p *vmPort) Read(b []byte) (n int, err error) {
	e := p.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		switch {
		case err == syscall.EINTR:
			return false
		case err == syscall.EAGAIN:
			p.connected()
			return false
		case err == nil && n == 0 && p.peer:
			// Nobody is there any more. Whoever is writing must not wait for the
			// next one with what was meant for this one.
			p.peer, err = false, io.EOF
			_ = p.f.SetWriteDeadline(time.Unix(1, 0))
			return true
		case err == nil && n == 0:
			return false
		}
		p.connected()
		return true
	})
	if e != nil {
		return 0, e
	}
	return max(n, 0), err
}

func (p *vmPort) connected() {
	if !p.peer {
		p.peer = true
		_ = p.f.SetWriteDeadline(time.Time{})
	}
}

func (p *vmPort) Write(b []byte) (int, error)        { return p.f.Write(b) }
func (p *vmPort) SetReadDeadline(t time.Time) error  { return p.f.SetReadDeadline(t) }
func (p *vmPort) SetWriteDeadline(t time.Time) error { return p.f.SetWriteDeadline(t) }

// Close closes the port for good.
func (p *vmPort) Close() error { return p.f.Close() }

// await tries until something is there; the kernel finds its devices in its own
// time.
func await[T any](find func() (T, error)) (T, error) {
	for deadline := time.Now().Add(deviceTime); ; time.Sleep(time.Millisecond) {
		v, err := find()
		if err == nil || time.Now().After(deadline) {
			return v, err
		}
	}
}

// deviceTime is how long a device may take to appear; a loaded machine emulates
// slowly.
const deviceTime = 60 * time.Second
