package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// publicPrefix begins the name of every public directory.
const publicPrefix = "airlock-cell-"

// Create makes a cell, or answers for the one that is there.
func (c *Cells) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	spec := req.GetSpec()
	if err := isolation.CheckSpec(spec); err != nil {
		return nil, err
	}
	s, host, err := c.opened()
	if err != nil {
		return nil, err
	}
	release, err := c.lock(ctx, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	old, err := s.load(spec.GetCellId())
	switch {
	case status.Code(err) == codes.NotFound:
	case err != nil:
		return nil, err
	case !old.Ready: // nobody was told of it
		if err := errors.Join(old.Root.KillTree(ctx), s.remove(old)); err != nil {
			return nil, plugin.Unavailable("cannot remove what an interrupted start has left: %v", err)
		}
	case old.Incarnation != spec.GetIncarnation():
		return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d", old.CellID, old.Incarnation)
	case !old.alive():
		return nil, plugin.FailedPrecondition("cell %s has ended; destroy it, and make it with a higher incarnation", old.CellID)
	default:
		return &pluginv1.CreateResponse{Cell: old.cell()}, nil
	}
	r := &record{
		V: version, CellID: spec.GetCellId(), Incarnation: spec.GetIncarnation(), HostID: spec.GetHostId(), Labels: spec.GetLabels(),
		Link: filepath.Join(spec.GetLinkDir(), "link.sock"), StartedAt: time.Now().UTC(),
	}
	if r.HostID == "" {
		r.HostID = host
	}
	if err := c.make(ctx, s, r, spec); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, withTrouble(err, errors.Join(r.Root.KillTree(undo), s.remove(r)))
	}
	return &pluginv1.CreateResponse{Cell: r.cell()}, nil
}

func (c *Cells) make(ctx context.Context, s store, r *record, spec *pluginv1.CellSpec) (err error) {
	if err := verify(spec); err != nil {
		return err
	}
	if r.Public, err = os.MkdirTemp("", publicPrefix); err == nil {
		err = os.Chmod(r.Public, 0o755)
	}
	if err != nil {
		return plugin.Unavailable("public directory: %v", err)
	}
	plan, err := c.Plan(ctx, &Place{Spec: spec, PublicDir: r.Public})
	if err != nil {
		return err
	}
	if r.Facts, err = protojson.Marshal(complete(plan.Facts, spec)); err != nil {
		return err
	}
	r.Proof = plan.Proof.String()
	if err := os.Remove(r.Link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return plugin.FailedPrecondition("an older socket is in the way: %v", err)
	}
	// The record comes before the process that it would have to find again.
	if err := s.save(r); err != nil {
		return plugin.Unavailable("%v", err)
	}
	log := s.path(r.CellID, "agent.log")
	ended, err := launch(plan, spec.GetLinkSecret(), log, func(pid int) error {
		if r.Root, err = Identify(pid); err != nil {
			return err
		}
		return s.save(r)
	})
	if err != nil {
		return plugin.Unavailable("start of the cell: %v", err)
	}
	if r.Agent, err = awaitAgent(ctx, r.Link, ended); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return plugin.Unavailable("start of the cell: %v%s", err, said(log))
	}
	r.Ready = true
	return s.save(r)
}

// complete fills in the facts that follow from the spec and the machine.
func complete(f *pluginv1.CellFacts, spec *pluginv1.CellSpec) *pluginv1.CellFacts {
	f.Os, f.Arch = runtime.GOOS, runtime.GOARCH
	if f.Limits == nil {
		f.Limits = map[string]string{}
	}
	for _, name := range []string{"cpu", "memory", "pids", "disk"} {
		if f.Limits[name] == "" {
			f.Limits[name] = "not-enforced:this driver does not limit it"
		}
	}
	for _, v := range spec.GetVolumes() {
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE && f.Workspace == "" {
			f.Workspace = v.GetTarget()
		}
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_STATE && f.State == "" {
			f.State = v.GetTarget()
		}
	}
	return f
}

// verify checks the agent's program against its checksum.
func verify(spec *pluginv1.CellSpec) error {
	f, err := os.Open(spec.GetAgentBinary())
	if err != nil {
		return plugin.FailedPrecondition("cell agent: %v", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return plugin.FailedPrecondition("cell agent: %v", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != strings.ToLower(spec.GetAgentSha256()) {
		return plugin.FailedPrecondition("the cell agent %s has the checksum %s, not %s", spec.GetAgentBinary(), got, spec.GetAgentSha256())
	}
	return nil
}

// launch starts a plan's program in a session of its own: it outlives the
// plugin. started is called at once with its pid; ended is closed at its end,
// if this process lives to see it.
func launch(plan *Plan, secret []byte, log string, started func(pid int) error) (ended <-chan struct{}, err error) {
	r, w, err := os.Pipe() // read once, and then there is no secret any more
	if err != nil {
		return nil, err
	}
	defer r.Close()
	_, err = w.Write(secret)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if len(plan.Argv) == 0 {
		return nil, errors.New("the plan has no program")
	}
	cmd := exec.Command(plan.Argv[0], plan.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append([]string{}, plan.Env...), "/", out, out
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = started(cmd.Process.Pid)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // reaped; what it means is asked elsewhere
		close(done)
	}()
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return done, err
}

// awaitAgent returns when the cell agent listens, and says which process it is.
func awaitAgent(ctx context.Context, link string, ended <-chan struct{}) (Process, error) {
	dir, err := unix.Open(filepath.Dir(link), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, fmt.Errorf("link directory: %w", err)
	}
	defer unix.Close(dir)
	// By descriptor, since the path may be longer than a socket's name can be.
	name := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(link)
	for {
		if conn, err := net.Dial("unix", name); err == nil {
			defer conn.Close()
			return peer(conn)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ended:
			return Process{}, errors.New("the program ended before the cell agent listened")
		case <-ctx.Done():
			return Process{}, fmt.Errorf("the cell agent does not listen: %w", ctx.Err())
		}
	}
}

func peer(conn net.Conn) (Process, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return Process{}, err
	}
	if inner != nil {
		return Process{}, inner
	}
	return Identify(int(cred.Pid))
}

// said is the end of the agent's log, for an error.
func said(log string) string {
	b, err := os.ReadFile(log)
	b = bytes.TrimSpace(b)
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; it said: " + string(b[max(0, len(b)-600):])
}

// withTrouble keeps the code of the error that counts.
func withTrouble(err, undo error) error {
	if undo == nil {
		return err
	}
	st := status.Convert(err)
	return status.Errorf(st.Code(), "%s; and what was begun could not be removed: %v", st.Message(), undo)
}

// cellLock is a lock that can be given up.
type cellLock struct {
	held chan struct{}
	uses int
}

func (c *Cells) lock(ctx context.Context, id string) (release func(), err error) {
	c.mu.Lock()
	if c.locks == nil {
		c.locks = map[string]*cellLock{}
	}
	l := c.locks[id]
	if l == nil {
		l = &cellLock{held: make(chan struct{}, 1)}
		c.locks[id] = l
	}
	l.uses++
	c.mu.Unlock()
	drop := func() {
		c.mu.Lock()
		if l.uses--; l.uses == 0 {
			delete(c.locks, id)
		}
		c.mu.Unlock()
	}
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
	release = func() { <-l.held; drop() }
	if err := ctx.Err(); err != nil { // given up meanwhile: whoever came first may count on it
		release()
		return nil, err
	}
	return release, nil
}
