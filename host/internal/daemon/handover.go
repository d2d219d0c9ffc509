package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/api"
)

// handoverEnv is the descriptor at which the next process finds what it is
// handed: a file in memory, so that no token is in an environment.
const handoverEnv = "AIRLOCK_HANDOVER"

// Handover is what a process of the host hands to the program that replaces it:
// listeners that stay open, so that whoever connects meanwhile waits instead of
// being refused, the registration's token, and, where the process before still
// lives, the link to it.
type Handover struct {
	// FDs are rest, ws and socket; link, to the process before; and life, whose
	// other end closes with the process that supervisors know.
	FDs   map[string]int `json:"fds"`
	Token string         `json:"token,omitempty"`

	files map[string]*os.File
	link  *link // nil: the process before has ended
	life  int   // 0: none
}

// TakeHandover gives what an earlier process has handed over; nil: nothing.
func TakeHandover() (*Handover, error) {
	text := os.Getenv(handoverEnv)
	if text == "" {
		return nil, nil
	}
	if err := os.Unsetenv(handoverEnv); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is no descriptor", handoverEnv, text)
	}
	f := os.NewFile(uintptr(fd), "handover") //nolint:gosec // checked above
	defer f.Close()
	var h Handover
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		err = json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&h)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the process before has handed over: %w", err)
	}
	h.files = map[string]*os.File{}
	for name, fd := range h.FDs {
		unix.CloseOnExec(fd)
		switch name {
		case "link":
			h.link = newLink(fd)
		case "life":
			h.life = fd
			go endWith(fd)
		default:
			h.files[name] = os.NewFile(uintptr(fd), name) //nolint:gosec // of our own process before
		}
	}
	return &h, nil
}

// endWith ends this process, as a kill does, when the one that supervisors know
// has ended: they would start another host beside this one.
func endWith(life int) {
	for b := make([]byte, 1); ; {
		n, err := unix.Read(life, b)
		if n == 0 && err == nil {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// tcp gives the listener for an address: the one that was handed over if it
// listens there, else a new one.
func (h *Handover) tcp(name, address string) (net.Listener, error) {
	if h == nil || h.files[name] == nil {
		return net.Listen("tcp", address)
	}
	l, err := net.FileListener(h.files[name])
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		var nowHost, nowPort string
		nowHost, nowPort, err = net.SplitHostPort(l.Addr().String())
		if err == nil && (port == "0" || port == nowPort) && (host == nowHost || net.ParseIP(host) == nil) {
			return l, nil
		}
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	h.drop(name) // the configuration wants another address
	return net.Listen("tcp", address)
}

func (h *Handover) socket(runDir string, uids []uint32) (net.Listener, error) {
	if h == nil || h.files["socket"] == nil {
		return api.ListenOperator(runDir, uids)
	}
	return api.AdoptOperator(runDir, h.files["socket"], uids)
}

func (h *Handover) drop(name string) {
	if f := h.files[name]; f != nil {
		_ = f.Close()
		delete(h.files, name)
	}
}

// close lets go of the copies; the listeners have their own.
func (h *Handover) close() {
	if h == nil {
		return
	}
	for name := range h.FDs {
		h.drop(name)
	}
}

// token is the registration's; empty: none was handed over.
func (h *Handover) token() string {
	if h == nil {
		return ""
	}
	return h.Token
}

// takesOver says that the process before still has the host and waits until this
// one is ready.
func (h *Handover) takesOver() bool { return h != nil && h.link != nil }

// wait says that this process is ready, with the plugins that are not well, and
// waits until the one before has let go.
func (h *Handover) wait(ctx context.Context, unwell map[string]string) error {
	if err := h.link.send(message{Ready: true, Unwell: unwell}); err != nil {
		return fmt.Errorf("the host that was to be taken over has gone: %w", err)
	}
	m, err := h.link.receive(ctx, 0)
	if err == nil && !m.Yours {
		err = errors.New("it says something else")
	}
	if err != nil {
		return fmt.Errorf("the host was not handed over: %w", err)
	}
	h.Token = m.Token
	return nil
}

// tellUp tells the process before that this one serves.
func (h *Handover) tellUp() {
	if h.takesOver() {
		_ = h.link.send(message{Up: true}) // one that was killed needs no word
		_ = h.link.f.Close()
	}
}

// exec replaces this process by a program, which takes everything over. It comes
// back with an error only.
func (h *Handover) exec(path string, args []string) error {
	fd, err := h.sealed()
	if err != nil {
		return err
	}
	for _, open := range append(slices.Collect(maps.Values(h.FDs)), fd) {
		if _, err := unix.FcntlInt(uintptr(open), unix.F_SETFD, 0); err != nil { //nolint:gosec // a descriptor
			return err
		}
	}
	return unix.Exec(path, args, append(os.Environ(), handoverEnv+"="+strconv.Itoa(fd)))
}

// sealed gives a file in memory that says what is handed over.
func (h *Handover) sealed() (fd int, err error) {
	text, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	if fd, err = unix.MemfdCreate("airlock-handover", unix.MFD_CLOEXEC); err != nil {
		return 0, err
	}
	if _, err = unix.Write(fd, text); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
