package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/api"
)

// handoverEnv is the descriptor at which the next process finds what it is
// handed: a file in memory, so that no token is in an environment.
const handoverEnv = "AIRLOCK_HANDOVER"

// checkWait bounds the look at a new program before the old one lets go.
const checkWait = 30 * time.Second

// Handover is what a process of the host hands to the program that replaces it:
// listeners that stay open, so that whoever connects meanwhile waits instead of
// being refused, and the registration's token.
type Handover struct {
	FDs   map[string]int `json:"fds"` // rest, ws, socket
	Token string         `json:"token,omitempty"`

	files map[string]*os.File
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
		h.files[name] = os.NewFile(uintptr(fd), name) //nolint:gosec // of our own process before
	}
	return &h, nil
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

// handOver takes copies of the listeners, which stay open when they are closed.
func (l *listeners) handOver(token string) (*Handover, error) {
	h := &Handover{FDs: map[string]int{}, Token: token, files: map[string]*os.File{}}
	for name, one := range map[string]net.Listener{"rest": l.rest, "ws": l.ws, "socket": l.socket} {
		filer, ok := one.(interface{ File() (*os.File, error) })
		if !ok {
			return nil, fmt.Errorf("the listener %s cannot be handed over", name)
		}
		f, err := filer.File()
		if err != nil {
			h.close()
			return nil, fmt.Errorf("hand over the listener %s: %w", name, err)
		}
		h.files[name], h.FDs[name] = f, int(f.Fd())
	}
	return h, nil
}

// exec replaces this process by the program at path, which takes everything
// over. It comes back with an error only.
func (h *Handover) exec(path string, args []string) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("airlock-handover", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, text); err != nil {
		return err
	}
	for _, f := range h.files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return unix.Exec(path, args, append(os.Environ(), handoverEnv+"="+strconv.Itoa(fd)))
}

// checkProgram says why a program may not take this host over: it does not run,
// or refuses the configuration.
func checkProgram(ctx context.Context, path, config string) error {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	for _, args := range [][]string{{"version"}, {"validate", config}} {
		if text, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, text[max(0, len(text)-2000):])
		}
	}
	return nil
}
