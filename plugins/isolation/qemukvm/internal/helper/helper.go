// Package helper is the one process that stands beside every VM: it carries the
// cell link between link.sock and the VM, and serves the cell's volumes. It is
// the driver's own program, started with the argument Argument, under the uid
// of the cell. It imports the package files, the standard library and
// golang.org/x/sys only.
//
// The one idea: it is not the driver. The driver may be killed and replaced
// while the mission talks to its cell and works on its files; whoever comes
// next finds this process by pid and start ticks, or starts it anew.
package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/files"
)

// Argument is the only argument of a driver's program that is to be a helper.
const Argument = "airlock-vm-helper"

// Descriptors that the driver passes, beside those of Setup.
const (
	setupFD    = 3 // Setup as JSON, to the end of the file
	listenerFD = 4 // link.sock, listening
	runFD      = 5 // the directory with the VM's sockets
	firstFD    = 6 // the volumes' directories, in order
)

// SavedFiles is the name in the run directory of what Save of the files has
// written, at SIGTERM.
const SavedFiles = "files.json"

// Links is how many ports a VM has for its link: one for the connection that
// counts, one for whoever wants to take its place.
const Links = 2

// LinkSocket is the socket of a link's port.
func LinkSocket(i int) string { return "link" + strconv.Itoa(i) + ".sock" }

// VolumeSocket is the socket of a volume's port.
func VolumeSocket(i int) string { return "vol" + strconv.Itoa(i) + ".sock" }

// Setup says what a helper does.
type Setup struct {
	Volumes []files.Options `json:"volumes"`
	// Load says that the run directory holds SavedFiles of the VM's last life.
	Load bool `json:"load"`
}

// Files are the descriptors in the order in which a process gets them from 3 on.
func Files(setup, listener, run *os.File, volumes []*os.File) []*os.File {
	return append([]*os.File{setup, listener, run}, volumes...)
}

// goneAfter is how long a VM's sockets refuse before the helper takes the VM
// for dead. The driver ends it earlier, if there is a driver.
const goneAfter = 5 * time.Second

// pause between two tries to reach the VM.
const pause = 20 * time.Millisecond

// Main runs a helper until its VM is gone, and returns the exit status.
func Main() int {
	debug.SetGCPercent(25)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "airlock VM helper:", err)
		return 1
	}
	return 0
}

func run() error {
	unix.Umask(0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		lim.Cur = lim.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &lim)
	}
	b, err := io.ReadAll(os.NewFile(setupFD, "setup"))
	if err != nil {
		return err
	}
	var s Setup
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	for fd := range len(s.Volumes) + firstFD {
		if fd >= setupFD {
			unix.CloseOnExec(fd)
		}
	}
	l := os.NewFile(listenerFD, "link")
	listener, err := net.FileListener(l)
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	_ = l.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := &vm{ctx: ctx, dir: "/proc/self/fd/" + strconv.Itoa(runFD)}
	servers, err := h.servers(s)
	if err != nil {
		return err
	}
	return h.serve(listener, servers)
}

// vm is how a helper reaches its VM.
type vm struct {
	ctx context.Context
	dir string
}

// servers makes a file server for each volume.
func (v *vm) servers(s Setup) ([]*files.Server, error) {
	var saved []json.RawMessage
	if s.Load {
		b, err := os.ReadFile(filepath.Join(v.dir, SavedFiles))
		if err == nil {
			err = json.Unmarshal(b, &saved)
		}
		if err != nil || len(saved) != len(s.Volumes) {
			return nil, fmt.Errorf("%s: %w", SavedFiles, errors.Join(err, errors.New("it does not fit the volumes")))
		}
	}
	var out []*files.Server
	for i, o := range s.Volumes {
		srv, err := files.New(firstFD+i, o)
		if err == nil && s.Load {
			err = srv.Load(bytesReader(saved[i]))
		}
		if err != nil {
			return nil, fmt.Errorf("volume %d: %w", i, err)
		}
		out = append(out, srv)
	}
	return out, nil
}

// serve works until the VM is gone, or until SIGTERM; then it writes down what
// the VM knows of its files.
func (v *vm) serve(listener net.Listener, servers []*files.Server) error {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			for {
				c, err := v.reach(ctx, VolumeSocket(i))
				if err != nil {
					cancel()
					return
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				if err := s.Serve(c); !files.IsEnd(err) && ctx.Err() == nil {
					fmt.Fprintf(os.Stderr, "airlock VM helper: volume %d: %v\n", i, err)
				}
				stop()
				_ = c.Close()
			}
		})
	}
	wg.Go(func() { (&relay{reach: v.reach}).serve(ctx, listener); cancel() })
	wg.Go(func() { v.watch(ctx); cancel() })
	<-ctx.Done()
	_ = listener.Close()
	wg.Wait()
	if v.ctx.Err() == nil {
		return nil
	}
	return v.save(servers)
}

// reach connects to a port of the VM, and gives up when there is no VM.
func (v *vm) reach(ctx context.Context, name string) (net.Conn, error) {
	since := time.Now()
	for {
		c, err := net.Dial("unix", filepath.Join(v.dir, name))
		if err == nil {
			return c, nil
		}
		if time.Since(since) > goneAfter {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watch returns when nothing listens at the link's port any more: the VM is
// gone. Somebody who is connected already is no sign of its end.
func (v *vm) watch(ctx context.Context) {
	missed := time.Time{}
	for {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		_, err := os.Lstat(filepath.Join(v.dir, LinkSocket(0)))
		switch {
		case err == nil:
			missed = time.Time{}
		case missed.IsZero():
			missed = time.Now()
		case time.Since(missed) > goneAfter:
			return
		}
	}
}

func (v *vm) save(servers []*files.Server) error {
	var all []json.RawMessage
	for _, s := range servers {
		var b rawBuffer
		if err := s.Save(&b); err != nil {
			return err
		}
		all = append(all, json.RawMessage(b.bytes))
		s.Close()
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	at := filepath.Join(v.dir, SavedFiles)
	if err := os.WriteFile(at+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(at+".new", at)
}
