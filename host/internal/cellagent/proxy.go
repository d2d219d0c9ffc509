package cellagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const (
	// maxCarried is how many connections of a session may be open at once.
	maxCarried = 128
	// maxDoors is how many gateways and forwards a session may have.
	maxDoors = 64
	// maxSocketPath is what fits into a sockaddr_un.
	maxSocketPath = 107
)

// doors are the ways out that one session has: sockets that the agent listens
// on, each of which leads over the cell link to the host. The agent decides
// only who may use a gateway; what is reached is the host's to say.
type doors struct {
	session   *session
	ctx       context.Context
	cancel    context.CancelFunc
	listeners []net.Listener
	dir       string   // of the unix sockets; empty = none
	env       []string // how the session finds them
	slots     chan struct{}
	wg        sync.WaitGroup
}

// door is what one listener leads to.
type door struct {
	target   string
	gateway  bool // only for processes of the session
	mainOnly bool
}

// openDoors listens for what a start asks for; nil = for nothing.
func (a *Agent) openDoors(s *session, req *cellv1.Start) (*doors, error) {
	if len(req.GetGateways()) == 0 && len(req.GetForwards()) == 0 && !req.GetProxy() && req.GetMcp() == nil {
		return nil, nil
	}
	if n := len(req.GetGateways()) + len(req.GetForwards()); n > maxDoors {
		return nil, fmt.Errorf("%d gateways and forwards, at most %d are possible", n, maxDoors)
	}
	d := &doors{session: s, slots: make(chan struct{}, maxCarried)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.open(a, req); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *doors) open(a *Agent, req *cellv1.Start) error {
	taken := map[string]bool{}
	name := func(env, value string) error {
		if taken[env] {
			return fmt.Errorf("two gateways or forwards would both be named %s", env)
		}
		taken[env] = true
		d.env = append(d.env, env+"="+value)
		return nil
	}
	if len(req.GetGateways()) > 0 {
		d.dir = filepath.Join(a.public.dir, fmt.Sprintf("gateway%d", markerTop-d.session.marker))
		_ = os.RemoveAll(d.dir)
		if err := os.Mkdir(d.dir, 0o755); err != nil {
			return err
		}
		d.env = append(d.env, "AIRLOCK_GATEWAY_DIR="+d.dir)
	}
	for _, g := range req.GetGateways() {
		to := door{target: g.GetName(), gateway: true, mainOnly: g.GetMainOnly()}
		path := filepath.Join(d.dir, g.GetName()+".sock")
		if err := d.listenUnix(path, to); err != nil {
			return fmt.Errorf("gateway %s: %w", g.GetName(), err)
		}
		addr, err := d.listenTCP(to)
		if err != nil {
			return fmt.Errorf("gateway %s: %w", g.GetName(), err)
		}
		prefix := "AIRLOCK_GATEWAY_" + envWord(g.GetName())
		if err := errors.Join(name(prefix+"_SOCKET", path), name(prefix+"_URL", "http://"+addr)); err != nil {
			return err
		}
	}
	for _, target := range req.GetForwards() {
		addr, err := d.listenTCP(door{target: target})
		if err != nil {
			return fmt.Errorf("forward to %s: %w", target, err)
		}
		if err := name("AIRLOCK_FORWARD_"+envWord(target), addr); err != nil {
			return err
		}
	}
	if m := req.GetMcp(); m != nil {
		addr, err := d.listenTCP(door{target: mcpTarget, gateway: true, mainOnly: m.GetMainOnly()})
		if err != nil {
			return fmt.Errorf("mcp: %w", err)
		}
		if err := name("AIRLOCK_MCP_URL", "http://"+addr+"/mcp"); err != nil {
			return err
		}
	}
	if req.GetProxy() {
		addr, err := d.listenTCP(door{target: proxyTarget})
		if err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
		d.env = append(d.env, proxyEnv("http://"+addr)...)
	}
	return nil
}

// names is how the session finds its doors, as environment. It may be called
// on nil.
func (d *doors) names() []string {
	if d == nil {
		return nil
	}
	return d.env
}

// Dial.target of the HTTP proxy and of the host's MCP endpoint.
const (
	proxyTarget = ":proxy"
	mcpTarget   = ":mcp"
)

func (d *doors) listenTCP(to door) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.serve(l, to)
	return l.Addr().String(), nil
}

// listenUnix listens on a socket that only the session's uid can connect to.
func (d *doors) listenUnix(path string, to door) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path of its socket is longer than %d bytes: %s", maxSocketPath, path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // the directory goes as a whole
	if err = os.Chmod(path, 0o600); err == nil && d.session.uid != 0 {
		err = os.Chown(path, int(d.session.uid), int(d.session.ownGroup()))
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	d.serve(l, to)
	return nil
}

// ownGroup is the gid that the session's processes have.
func (s *session) ownGroup() uint32 {
	if s.gid == 0 {
		return s.uid
	}
	return s.gid
}

// serve takes connections until the listener is closed.
func (d *doors) serve(l net.Listener, to door) {
	d.listeners = append(d.listeners, l)
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, most likely
				select {
				case <-time.After(100 * time.Millisecond):
					continue
				case <-d.ctx.Done():
					return
				}
			}
			select {
			case d.slots <- struct{}{}:
			default:
				reset(c)
				continue
			}
			d.wg.Go(func() {
				defer func() { <-d.slots }()
				d.carry(c, to)
			})
		}
	})
}

// carry takes one connection to the host and back. With no host it holds it.
func (d *doors) carry(c net.Conn, to door) {
	agent := d.session.agent
	dial := &cellv1.Dial{Target: to.target, SessionId: d.session.id}
	if to.gateway {
		p, err := d.session.caller(c, to.mainOnly)
		if err != nil {
			agent.log.warn("a gateway was refused", "gateway", to.target, "session", d.session.id, "error", err)
			reset(c)
			return
		}
		dial.Pid, dial.StartTicks = int32(p.pid), p.start
	}
	stream, err := agent.openDial(d.ctx, dial)
	if err != nil {
		reset(c)
		return
	}
	defer context.AfterFunc(d.ctx, func() { abort(c, stream) })()
	join(c, stream)
}

// close ends every connection and takes the sockets away. It may be called on
// nil.
func (d *doors) close() {
	if d == nil {
		return
	}
	d.cancel()
	for _, l := range d.listeners {
		_ = l.Close()
	}
	d.wg.Wait()
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

// proxyEnv tells programs of the HTTP proxy, in the spellings that they look
// for. What is on loopback they reach themselves.
func proxyEnv(url string) []string {
	const direct = "localhost,127.0.0.1,::1"
	var env []string
	for _, n := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		env = append(env, n+"="+url)
	}
	return append(env, "NO_PROXY="+direct, "no_proxy="+direct)
}

// envWord makes a name fit into that of an environment variable.
func envWord(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}

// validGateway says whether a name can be that of a socket.
func validGateway(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// validForward says whether a target is host:port.
func validForward(target string) bool {
	host, port, err := net.SplitHostPort(target)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n > 0 && host != "" && len(host) <= 255
}
