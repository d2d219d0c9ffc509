package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// look is the pause between two looks at something that changes by itself.
const look = 20 * time.Millisecond

// kit is what the checks share.
type kit struct {
	client pluginv1.IsolationClient
	opts   Options

	mu    sync.Mutex
	made  []*pluginv1.CellSpec // to be destroyed after the check
	conns []*cell.Conn
	note  string // the detail of a check that passes

	share, keep bool   // see sharing
	shared      *place // guarded by mu
}

// place is a cell that a check has made.
type place struct {
	kit  *kit
	spec *pluginv1.CellSpec
	cell *pluginv1.Cell
	conn *cell.Conn
	work string // the workspace on the host

	mu    sync.Mutex
	exits map[string]*cellv1.Exited // of sessions that nobody has asked for yet
}

func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "t" + hex.EncodeToString(b[:])
}

// spec makes a spec, with a link directory and a workspace.
func (k *kit) spec() (*pluginv1.CellSpec, error) {
	id := newID()
	link, work := filepath.Join(k.opts.Dir, id), filepath.Join(k.opts.Dir, id+"-w")
	if err := errors.Join(os.Mkdir(link, 0o700), os.Mkdir(work, 0o700), os.Chmod(work, 0o777)); err != nil {
		return nil, fmt.Errorf("prepare a cell: %w", err)
	}
	if o := k.opts.Owner; o != 0 {
		if err := errors.Join(os.Chown(link, o, o), os.Chown(work, o, o)); err != nil {
			return nil, fmt.Errorf("prepare a cell: %w", err)
		}
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	if k.opts.secret != nil {
		k.opts.secret(secret)
	}
	s := &pluginv1.CellSpec{
		CellId: id, Incarnation: 1, HostId: k.opts.HostID, Labels: map[string]string{"check": id},
		AgentBinary: k.opts.AgentBinary, AgentSha256: k.opts.AgentSHA256, LinkDir: link, LinkSecret: secret,
		Network: &pluginv1.Network{Mode: k.opts.Network}, Uid: k.opts.UID, Gid: k.opts.GID,
		Volumes: []*pluginv1.Volume{{
			VolumeId: id, Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, HostPath: work, Target: "/workspace",
		}},
	}
	k.mu.Lock()
	k.made = append(k.made, s)
	k.mu.Unlock()
	return s, nil
}

// create makes a cell and opens its link; change may alter the spec before.
func (k *kit) create(ctx context.Context, change func(*pluginv1.CellSpec)) (*place, error) {
	if change == nil {
		if p, err := k.again(ctx); p != nil || err != nil {
			return p, err
		}
	}
	s, err := k.spec()
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(s)
	}
	r, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s})
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	p := &place{kit: k, spec: s, cell: r.GetCell(), work: s.GetVolumes()[0].GetHostPath()}
	if err := p.dial(ctx); err != nil {
		return p, err
	}
	if change == nil {
		k.hold(p)
	}
	return p, nil
}

func (p *place) dial(ctx context.Context) error {
	conn, err := cell.Dial(ctx, p.cell.GetLink(), p.spec.GetLinkSecret())
	for tries := 0; errors.Is(err, cell.ErrRefused) && tries < 3; tries++ { // a host dials again too
		conn, err = cell.Dial(ctx, p.cell.GetLink(), p.spec.GetLinkSecret())
	}
	if err != nil {
		return err
	}
	p.conn = conn
	p.kit.mu.Lock()
	p.kit.conns = append(p.kit.conns, conn)
	p.kit.mu.Unlock()
	return conn.Bind(ctx, "conformance", 1)
}

// clean destroys every cell of the check; anything left is an error.
func (k *kit) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	k.mu.Lock()
	made, conns := k.made, k.conns
	k.made, k.conns = nil, nil
	k.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	errs := make([]error, len(made))
	var wg sync.WaitGroup
	few := make(chan struct{}, 8)
	for i, s := range made {
		few <- struct{}{}
		wg.Go(func() {
			defer func() { <-few }()
			errs[i] = k.destroy(ctx, s)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// destroy removes a cell that a check has made, and what was prepared for it.
func (k *kit) destroy(ctx context.Context, s *pluginv1.CellSpec) error {
	var errs []error
	ref := &pluginv1.CellRef{CellId: s.GetCellId()}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: true}); err != nil && status.Code(err) != codes.InvalidArgument {
		errs = append(errs, fmt.Errorf("clean up: destroy: %w", err))
	}
	if _, err := os.Lstat(filepath.Join(s.GetLinkDir(), "link.sock")); err == nil {
		errs = append(errs, errors.New("clean up: the socket is still there after destroy"))
	}
	_, _ = os.RemoveAll(s.GetLinkDir()), os.RemoveAll(s.GetVolumes()[0].GetHostPath())
	return errors.Join(errs...)
}

// session is a shell that was started in a cell.
type session struct {
	place *place
	id    string
}

// start runs a script with /bin/sh in the workspace.
func (p *place) start(ctx context.Context, script string) (*session, error) {
	s := &session{p, newID()}
	facts := p.cell.GetFacts()
	_, err := p.conn.Start(ctx, &cellv1.Start{
		SessionId: s.id, Generation: 1, Argv: []string{"/bin/sh", "-c", script}, Cwd: facts.GetWorkspace(),
		Uid: facts.GetUid(), Gid: facts.GetGid(), OnFull: cellv1.OnFull_ON_FULL_DROP_OLDEST,
	})
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return s, nil
}

// finish reads a session's output to its end, and its exit.
func (s *session) finish(ctx context.Context) (output string, exit *cellv1.Exited, err error) {
	r, err := s.place.conn.ReadOutput(ctx, s.id, 0)
	if err != nil {
		return "", nil, fmt.Errorf("read output: %w", err)
	}
	defer r.Close()
	var b bytes.Buffer
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			break
		}
		if err != nil {
			return b.String(), nil, fmt.Errorf("read output: %w", err)
		}
		b.Write(f.GetData().GetData())
	}
	exit, err = s.exited(ctx)
	return b.String(), exit, err
}

// exited waits for a session's exit, and keeps those of others that come first.
// What came to an earlier connection is in the hello of this one.
func (s *session) exited(ctx context.Context) (*cellv1.Exited, error) {
	p := s.place
	for {
		p.mu.Lock()
		e := p.exits[s.id]
		p.mu.Unlock()
		for _, st := range p.conn.Hello().GetSessions() {
			if e == nil && st.GetSessionId() == s.id {
				e = st.GetExited()
			}
		}
		if e != nil {
			return e, nil
		}
		select {
		case got, ok := <-p.conn.Events():
			if !ok {
				return nil, fmt.Errorf("wait for an exit: %w", p.conn.Err())
			}
			if got.Exited != nil {
				p.mu.Lock()
				if p.exits == nil {
					p.exits = map[string]*cellv1.Exited{}
				}
				p.exits[got.Exited.GetSessionId()] = got.Exited
				p.mu.Unlock()
			}
		case <-time.After(look): // somebody else may have taken it
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for an exit: %w", ctx.Err())
		}
	}
}

// sh runs a script to its end; an exit other than 0 is an error.
func (p *place) sh(ctx context.Context, script string) (string, error) {
	s, err := p.start(ctx, script)
	if err != nil {
		return "", err
	}
	out, exit, err := s.finish(ctx)
	if err == nil && (exit.GetCode() != 0 || exit.GetSignal() != 0) {
		err = fmt.Errorf("%q ended with code %d, signal %d, and said %q", script, exit.GetCode(), exit.GetSignal(), out)
	}
	return out, err
}

// beat is a script that counts in a file of this name until it is killed.
func beat(name string) string {
	return "i=0; while :; do i=$((i+1)); echo $i > .new-" + name + " && mv .new-" + name + " " + name + "; sleep 0.02; done"
}

// awaitBeat waits until the counter of a name moves.
func (p *place) awaitBeat(ctx context.Context, name string) error {
	first := p.beatAt(name)
	return until(ctx, "a process that counts in "+name, func() bool { return p.beatAt(name) != first })
}

// still says which of these counters still move, over a time in which each
// would have moved several times.
func (p *place) still(ctx context.Context, names ...string) error {
	before := map[string]string{}
	for _, n := range names {
		before[n] = p.beatAt(n)
	}
	if err := rest(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	for _, n := range names {
		if now := p.beatAt(n); now != before[n] {
			return fmt.Errorf("the process %s still runs: it counted from %q to %q", n, before[n], now)
		}
	}
	return nil
}

func (p *place) beatAt(name string) string {
	b, _ := os.ReadFile(filepath.Join(p.work, name)) // none yet = empty
	return string(bytes.TrimSpace(b))
}

// until waits for something to become true.
func until(ctx context.Context, what string, ok func() bool) error {
	for !ok() {
		if err := rest(ctx, look); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// want checks an error's code.
func want(err error, what string, wanted ...codes.Code) error {
	got := status.Code(err)
	for _, c := range wanted {
		if got == c {
			return nil
		}
	}
	if err == nil {
		return fmt.Errorf("%s succeeds; it should be refused with %v", what, wanted)
	}
	return fmt.Errorf("%s is refused with %v, not %v: %w", what, got, wanted, err)
}

// list collects the cells of the host, by id.
func (k *kit) list(ctx context.Context) (map[string]*pluginv1.ListResponse, error) {
	stream, err := k.client.List(ctx, &pluginv1.ListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	out := map[string]*pluginv1.ListResponse{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		id := m.GetRef().GetCellId()
		if out[id] != nil {
			return nil, fmt.Errorf("list names cell %s twice", id)
		}
		out[id] = m
	}
}
