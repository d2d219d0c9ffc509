package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"github.com/gorilla/websocket"
)

const (
	// authWait is how long a socket may take to show its credential.
	authWait = 5 * time.Second
	// maxUnproven bounds the sockets that have not shown theirs yet.
	maxUnproven = 64
	// pingEvery and pongWait find out that the other end is gone.
	pingEvery = 20 * time.Second
	pongWait  = 60 * time.Second
	// maxFrame is the longest frame that is read.
	maxFrame = 1 << 20
	// closeBase is added to an HTTP status to make a close code.
	closeBase = 4000
)

// wsFrame is a text frame, in either direction.
type wsFrame struct {
	Type string `json:"type"` // auth, input, resize | ready, gap, end, error, event

	Token string `json:"token,omitempty"` // auth
	Data  string `json:"data,omitempty"`  // input
	Cols  uint16 `json:"cols,omitempty"`  // resize
	Rows  uint16 `json:"rows,omitempty"`  // resize

	Session string  `json:"session_id,omitempty"` // ready
	Mission string  `json:"mission_id,omitempty"` // ready
	Write   bool    `json:"write,omitempty"`      // ready
	From    *uint64 `json:"from,omitempty"`       // ready, gap
	To      *uint64 `json:"to,omitempty"`         // gap
	Offset  *uint64 `json:"offset,omitempty"`     // end

	Cursor string          `json:"cursor,omitempty"` // ready, event: what to resume after
	Event  json.RawMessage `json:"event,omitempty"`  // event

	Status int    `json:"status,omitempty"` // error
	Error  string `json:"error,omitempty"`  // error
}

// wsRun is a socket's work once it may do it. It ends when ctx ends.
type wsRun struct {
	run  func(ctx context.Context, c *wsConn)
	done func() // called in any case, may be nil
}

// WSRoute is a route of the WebSocket listener; it takes a viewer's credential
// and prepare checks what else is needed.
type WSRoute struct {
	Path    string
	Needs   Credential
	prepare func(r *http.Request, op *Operator) (wsRun, error)
}

// WSRoutes is the table of the WebSocket listener.
func (s *Server) WSRoutes() []WSRoute {
	return []WSRoute{
		{Path: "/ws/sessions/{id}", Needs: NeedViewer, prepare: s.prepareAttach},
		{Path: "/ws/events", Needs: NeedViewer, prepare: s.prepareFeed},
	}
}

func (s *Server) wsRouter(table []WSRoute) *mux.Router {
	m := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, rt := range table {
		m.Path(rt.Path).Methods(http.MethodGet).Name("WS " + rt.Path).HandlerFunc(s.upgrade(rt))
	}
	m.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusNotFound, "there is no such socket").write(w)
	})
	return m
}

// upgrade makes a socket of a request. With a credential in the header every
// refusal is a plain HTTP answer; without one the socket is opened, and the
// first frame has to show it.
func (s *Server) upgrade(rt WSRoute) http.HandlerFunc {
	up := websocket.Upgrader{
		ReadBufferSize: 4 << 10, WriteBufferSize: 32 << 10,
		CheckOrigin: func(*http.Request) bool { return true }, // guard has done it
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			refuse(status, reason.Error()).write(w)
		},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		for name, v := range mux.Vars(r) {
			id, err := url.PathUnescape(v)
			if err != nil {
				refuse(http.StatusBadRequest, "the path is not encoded right").write(w)
				return
			}
			r.SetPathValue(name, id)
		}
		if !websocket.IsWebSocketUpgrade(r) {
			refuse(http.StatusUpgradeRequired, "this is a WebSocket").write(w)
			return
		}
		_, unixConn := r.Context().Value(peerKey{}).(peer)
		var work wsRun
		if _, has := bearer(r); has || unixConn {
			op, err := s.who(r)
			if err == nil {
				work, err = s.prepare(rt, r, op)
			}
			if err != nil {
				asProblem(err).write(w)
				return
			}
		} else {
			select {
			case s.unproven <- struct{}{}:
			default:
				refuse(http.StatusServiceUnavailable, "too many sockets that have not shown a credential").write(w)
				return
			}
		}
		conn, err := up.Upgrade(w, r, nil)
		proven := work.run != nil
		if err != nil {
			if !proven {
				<-s.unproven
			}
			work.finish()
			return
		}
		c := &wsConn{conn: conn, timeout: s.opts.WriteTimeout, now: s.now}
		defer func() { _ = conn.Close() }()
		if !proven {
			op, err := s.firstFrame(r, c)
			<-s.unproven
			if err == nil {
				work, err = s.prepare(rt, r, op)
			}
			if err != nil {
				c.refuse(asProblem(err))
				return
			}
		}
		defer work.finish()
		s.metrics.socket(1)
		defer s.metrics.socket(-1)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stop := context.AfterFunc(s.life, cancel)
		defer stop()
		work.run(ctx, c)
	}
}

func (s *Server) prepare(rt WSRoute, r *http.Request, op *Operator) (wsRun, error) {
	if err := allow(rt.Needs, op); err != nil {
		return wsRun{}, err
	}
	return rt.prepare(r, op)
}

func (w wsRun) finish() {
	if w.done != nil {
		w.done()
	}
}

// firstFrame reads {"type":"auth","token":…}.
func (s *Server) firstFrame(r *http.Request, c *wsConn) (*Operator, error) {
	c.conn.SetReadLimit(4 << 10)
	_ = c.conn.SetReadDeadline(s.now().Add(authWait))
	kind, data, err := c.conn.ReadMessage()
	if err != nil {
		return nil, refuse(http.StatusUnauthorized, "no credential came in time")
	}
	var typ, token string
	if kind != websocket.TextMessage || decodeBody(data, member{"type", &typ, true}, member{"token", &token, true}) != nil || typ != "auth" {
		return nil, s.denied(r, `the first frame must be {"type":"auth","token":"…"}`)
	}
	return s.byToken(s.operators.Load(), r, token)
}

// wsConn is a socket: writes are serialised and each must get through in time.
type wsConn struct {
	conn    *websocket.Conn
	timeout time.Duration
	now     func() time.Time
	mu      sync.Mutex
}

func (c *wsConn) write(kind int, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(c.now().Add(c.timeout))
	return c.conn.WriteMessage(kind, data)
}

func (c *wsConn) send(f wsFrame) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return c.write(websocket.TextMessage, data)
}

// refuse says why and closes with 4000 + the HTTP status.
func (c *wsConn) refuse(p *problem) {
	_ = c.send(wsFrame{Type: "error", Status: p.Status, Error: p.Err})
	c.close(closeBase+p.Status, p.Err)
}

// close sends a close frame; the reason is cut to what a control frame holds.
func (c *wsConn) close(code int, reason string) {
	for len(reason) > 120 {
		reason = reason[:len(reason)-1]
	}
	_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), c.now().Add(time.Second))
}

// serve reads frames until the socket ends, then calls cancel; pings meanwhile.
// wait returns when both have ended, which closing the socket brings about.
func (c *wsConn) serve(ctx context.Context, cancel func(), take func(kind int, data []byte) error) (wait func()) {
	c.conn.SetReadLimit(maxFrame)
	alive := func(string) error { return c.conn.SetReadDeadline(c.now().Add(pongWait)) }
	_ = alive("")
	c.conn.SetPongHandler(alive)
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		defer cancel()
		for {
			kind, data, err := c.conn.ReadMessage()
			if err != nil {
				return
			}
			_ = alive("")
			if take(kind, data) != nil {
				return
			}
		}
	}()
	go func() {
		defer wg.Done()
		t := time.NewTicker(pingEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if c.conn.WriteControl(websocket.PingMessage, nil, c.now().Add(c.timeout)) != nil {
					cancel()
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		_ = c.conn.Close()
		wg.Wait()
	}
}

// slow says that a write failed because the reader does not read.
func slow(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
