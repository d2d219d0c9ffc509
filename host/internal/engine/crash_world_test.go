package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/airlock-host/airlock/host/internal/engine"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// world is what is around an engine: plugins over gRPC in this process, whose
// failures are drawn, and an issuer whose ledger survives every kill.
type world struct {
	engine.Plugins // what nobody asks of it is not there

	l    life
	hit  func(point string)
	dice *dice
	file *os.File // the issuer's ledger

	isolation pluginv1.IsolationClient
	runtime   pluginv1.RuntimeClient
	revoker   pluginv1.RevokerClient
	policy    pluginv1.PolicyClient

	pluginv1.UnimplementedRevokerServer
	pluginv1.UnimplementedPolicyServer
}

// dice are thrown by many goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func newWorld(dir string, l life, hit func(string), d *dice) (*world, error) {
	file, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	w := &world{l: l, hit: hit, dice: d, file: file}
	driver := fake.NewDriver()
	driver.Agent = serveCell
	srv := grpc.NewServer()
	pluginv1.RegisterIsolationServer(srv, driver)
	pluginv1.RegisterRuntimeServer(srv, fake.NewRuntime())
	pluginv1.RegisterRevokerServer(srv, w)
	pluginv1.RegisterPolicyServer(srv, w)
	pipe := bufconn.Listen(1 << 16)
	go func() { _ = srv.Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:world", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	w.isolation, w.runtime = pluginv1.NewIsolationClient(conn), pluginv1.NewRuntimeClient(conn)
	w.revoker, w.policy = pluginv1.NewRevokerClient(conn), pluginv1.NewPolicyClient(conn)
	return w, nil
}

func (w *world) Isolation(string) (pluginv1.IsolationClient, error) { return w.isolation, nil }
func (w *world) Runtime(string) (pluginv1.RuntimeClient, error)     { return w.runtime, nil }
func (w *world) Policy(string) (pluginv1.PolicyClient, error)       { return w.policy, nil }
func (w *world) Capabilities(string) ([]string, error)              { return []string{"fake"}, nil }
func (w *world) Features(string) []string                           { return []string{"grants"} }
func (w *world) Attributes(string) map[string]string                { return nil }
func (w *world) Needs(string) []*pluginv1.Need                      { return nil }
func (w *world) Build(string) (version, sha256 string)              { return "1", "" }
func (w *world) Changed() <-chan struct{}                           { return nil }

// Revoker is away now and then, as a plugin is that has crashed.
func (w *world) Revoker(string) (pluginv1.RevokerClient, error) {
	if !w.l.Last && w.dice.roll(10) == 0 {
		return nil, errors.New("the plugin has crashed and is started again")
	}
	return w.revoker, nil
}

// write puts a line into the issuer's ledger, at once.
func (w *world) write(verb string, ids ...string) {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s %s\n", verb, id)
	}
	if _, err := w.file.WriteString(b.String()); err != nil {
		panic(err)
	}
}

// Grant gives a credential.
func (w *world) Grant(_ context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	w.hit("grant.asked")
	w.write("granted", req.GetGrantId())
	w.hit("grant.given")
	if !w.l.Last && w.dice.roll(8) == 0 {
		return nil, plugin.Unavailable("the plugin crashed after the issuer had granted")
	}
	return &pluginv1.GrantResponse{Grant: &pluginv1.Grant{GrantId: req.GetGrantId(), Env: map[string]string{"TOKEN": "t"}}}, nil
}

// Revoke cuts access, or fails in one of the ways in which a plugin can.
func (w *world) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	w.hit("revoke.asked")
	way := w.dice.roll(10)
	if w.l.Last {
		way = 9
	}
	switch way {
	case 0:
		<-ctx.Done() // it hangs
		return nil, ctx.Err()
	case 1:
		return nil, plugin.Unavailable("the plugin crashed before it had asked the issuer")
	case 2:
		return &pluginv1.RevokeResponse{Detail: "garbage"}, nil
	case 3:
		return &pluginv1.RevokeResponse{Result: pluginv1.RevokeResult_REVOKE_RESULT_REFUSED, Retryable: true, Detail: "the issuer is away"}, nil
	}
	w.write("revoked", append(append(req.GetGrants(), req.GetSessions()...), req.GetDelegations()...)...)
	w.hit("revoke.done")
	if way == 4 {
		return nil, plugin.Unavailable("the plugin crashed after the issuer had revoked")
	}
	return &pluginv1.RevokeResponse{Result: pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED}, nil
}

// Verify has nothing to say.
func (w *world) Verify(context.Context, *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER}, nil
}

// Evaluate is a judge without an opinion, who hangs now and then.
func (w *world) Evaluate(ctx context.Context, _ *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	w.hit("judge.asked")
	if !w.l.Last && w.dice.roll(12) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pluginv1.EvaluateResponse{}, nil
}

// serveCell is a cell agent that can be bound and in which no session can be
// started: a mission's start comes as far as its access, and is then over.
func serveCell(spec *pluginv1.CellSpec, l net.Listener) (stop func()) {
	responder := cell.NewResponder(spec.GetLinkSecret())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if link, err := responder.Accept(c, false).Next(); err == nil {
					talk(link)
				}
			}()
		}
	}()
	return func() { _ = l.Close() }
}

func talk(link *cell.Link) {
	mux, err := link.Mux()
	if err != nil {
		return
	}
	defer mux.Close()
	control, err := mux.AcceptStream()
	if err != nil {
		return
	}
	dec, enc := cell.NewDecoder(control), cell.NewEncoder(control)
	for {
		var f cellv1.HostFrame
		if dec.Decode(&f) != nil {
			return
		}
		reply := &cellv1.AgentFrame{Id: f.GetId()}
		switch f.GetFrame().(type) {
		case *cellv1.HostFrame_Hello:
			reply.Frame = &cellv1.AgentFrame_Hello{Hello: &cellv1.HelloReply{Proto: cell.ProtoMax, AgentVersion: "test"}}
		case *cellv1.HostFrame_Start:
			time.Sleep(5 * time.Millisecond) // long enough for a stop or a kill to come in between
			reply.Error = &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_INTERNAL, Message: "no session can be started in this cell"}
		}
		if enc.Encode(reply) != nil {
			return
		}
	}
}
