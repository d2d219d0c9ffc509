package api

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Credential is what a route takes.
type Credential int

// The credentials. Their zero value is none that a route may have.
const (
	_            Credential = iota
	NeedNone                // anybody who reaches the listener
	NeedViewer              // any operator
	NeedOperator            // an operator with role "operator"
	NeedHost                // the same, and one that sees every agent: it concerns the whole host
	NeedExecutor            // the executor token; the handler checks it
	NeedMCP                 // a task token that is good for the MCP endpoint; the handler checks it
	NeedMetrics             // any operator, or nobody when metrics are open
	NeedTask                // the token of the task in the path, good for the route's scope
	NeedCode                // a one-time code of `airlock ui` in the body; the handler checks it
)

// peerKey is where a connection of the operator socket keeps who is on its
// other end.
type peerKey struct{}

// peer is who is on the other end of the operator socket.
type peer struct {
	uid   uint32
	known bool
}

// connContext notes the peer of a unix connection, as the kernel knows it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	var p peer
	if raw, err := uc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a descriptor
			if err == nil {
				p = peer{uid: cred.Uid, known: true}
			}
		})
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// remote names who asks, for counting failures.
func remote(r *http.Request) string {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return "uid:" + strconv.FormatUint(uint64(p.uid), 10)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// bearer takes the token out of the Authorization header. has says that there
// is such a header at all.
func bearer(r *http.Request) (token string, has bool) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return strings.TrimSpace(token), true
}

// who finds the operator who asks: by the token, or on the operator socket by
// the uid. A wrong token is not mended by a right uid.
func (s *Server) who(r *http.Request) (*Operator, error) {
	table := s.operators.Load()
	token, has := bearer(r)
	if has {
		return s.byToken(table, r, token)
	}
	p, unixConn := r.Context().Value(peerKey{}).(peer)
	if unixConn && p.known {
		if op := table.byUID(p.uid); op != nil {
			return op, nil
		}
		return nil, s.denied(r, "uid "+strconv.FormatUint(uint64(p.uid), 10)+" is no operator: list it in an operator block (uids) or show a bearer token")
	}
	return nil, refuse(http.StatusUnauthorized, "a bearer token is needed: Authorization: Bearer TOKEN")
}

func (s *Server) byToken(table *Operators, r *http.Request, token string) (*Operator, error) {
	if op := table.find(token); op != nil {
		return op, nil
	}
	if op := s.ui.who(table, token); op != nil {
		return op, nil
	}
	return nil, s.denied(r, "the token is not that of an operator")
}

// openTo says that a request shows no credential at all and that open routes take
// such ones.
func (s *Server) openTo(r *http.Request) bool {
	_, has := bearer(r)
	_, local := r.Context().Value(peerKey{}).(peer)
	return s.opts.OpenAnswers != "" && !has && !local
}

// denied counts a wrong credential.
func (s *Server) denied(r *http.Request, text string) *problem {
	s.metrics.denied()
	from := remote(r)
	over, first := s.limiter.fail(from)
	if !over {
		return refuse(http.StatusUnauthorized, text)
	}
	if first {
		s.log.Warn("too many wrong credentials", "remote", from)
	}
	return refuse(http.StatusTooManyRequests, "too many wrong credentials; wait a minute")
}

// WrongCredential counts a wrong credential that a mounted handler has found, and
// says whether its remote has shown too many.
func (s *Server) WrongCredential(r *http.Request) (tooMany bool) {
	return s.denied(r, "").Status == http.StatusTooManyRequests
}

// allow says whether an operator may use a route.
func allow(need Credential, op *Operator) error {
	switch need {
	case NeedViewer, NeedMetrics:
		return nil
	case NeedOperator, NeedHost:
		if !op.MayWrite() {
			return refuse(http.StatusForbidden, "operator "+strconv.Quote(op.Name)+" has the role viewer and may only read")
		}
		if need == NeedHost && op.Restricted() {
			return refuse(http.StatusForbidden, "operator "+strconv.Quote(op.Name)+" sees some agents only; this concerns the whole host")
		}
		return nil
	default:
		return refuse(http.StatusForbidden, "this route takes no operator's credential")
	}
}
