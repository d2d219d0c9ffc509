package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// SocketName is the operator socket's name below run_dir.
const SocketName = "airlock.sock"

// ListenOperator makes the operator socket below runDir. Its mode lets in those
// who may be let in: 0600 for its owner; with one other uid listed the socket
// is given to that one; with several it is open to connect and the kernel's word
// on who connected decides (SO_PEERCRED), as it does in any case. A socket that
// nobody listens on is replaced.
func ListenOperator(runDir string, uids []uint32) (net.Listener, error) {
	path := filepath.Join(runDir, SocketName)
	if err := os.MkdirAll(runDir, 0o755); err != nil { //nolint:gosec // the socket in it has its own mode
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("operator socket %s: another host listens there", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("operator socket %s: there is something else of that name", path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("operator socket: %w", err)
		}
	}
	// Made under another name, so that nobody sees it with a mode that is not
	// its own yet.
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = openTo(tmp, uids)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		return &socketListener{UnixListener: l, path: path}, nil
	}
	_ = l.Close()
	_ = os.Remove(tmp)
	return nil, fmt.Errorf("operator socket %s: %w", path, err)
}

// OpenSocket gives the operator socket below runDir the mode that these uids
// need, after a reload.
func OpenSocket(runDir string, uids []uint32) error {
	path := filepath.Join(runDir, SocketName)
	if err := openTo(path, uids); err != nil {
		return fmt.Errorf("operator socket %s: %w", path, err)
	}
	return nil
}

// openTo sets owner and mode.
func openTo(path string, uids []uint32) error {
	self := os.Geteuid()
	var others []uint32
	for _, uid := range uids {
		if int(uid) != self && uid != 0 {
			others = append(others, uid)
		}
	}
	switch {
	case len(others) == 0:
		return os.Chmod(path, 0o600)
	case len(others) == 1 && self == 0:
		if err := os.Chown(path, int(others[0]), -1); err != nil {
			return err
		}
		return os.Chmod(path, 0o600)
	default:
		return os.Chmod(path, 0o666) //nolint:gosec // SO_PEERCRED decides
	}
}

// AdoptOperator is ListenOperator for a socket that an earlier process listens on
// and has handed over.
func AdoptOperator(runDir string, f *os.File, uids []uint32) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("operator socket: what was handed over is no unix socket"), l.Close())
	}
	u.SetUnlinkOnClose(false)
	if err := OpenSocket(runDir, uids); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return &socketListener{UnixListener: u, path: filepath.Join(runDir, SocketName)}, nil
}

// socketListener removes the socket when it is closed.
type socketListener struct {
	*net.UnixListener
	path   string
	handed atomic.Bool
}

// Handed says whether another process goes on to listen: the path then stays.
func (l *socketListener) Handed(is bool) { l.handed.Store(is) }

// Close stops listening and removes the socket, unless it was handed over.
func (l *socketListener) Close() error {
	err := l.UnixListener.Close()
	if l.handed.Load() {
		return err
	}
	if rm := os.Remove(l.path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}
