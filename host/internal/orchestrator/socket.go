package orchestrator

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// socket is one WebSocket of an executor or a sandbox.
type socket struct {
	vacated  bool // under Orchestrator.mu
	conn     *websocket.Conn
	executor string
	write    sync.Mutex
}

func (s *socket) send(v any) error {
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	return s.conn.WriteJSON(v)
}

func (s *socket) close(code int, reason string) {
	_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
}

// accept upgrades and, as serve does, refuses a wrong token only afterwards.
func (o *Orchestrator) accept(w http.ResponseWriter, r *http.Request, token func() string) *socket {
	conn, err := o.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil
	}
	s := &socket{conn: conn}
	o.mu.Lock()
	want := token()
	ok := want != "" && same(r.URL.Query().Get("token"), want) && o.life.Err() == nil
	if ok {
		o.sockets[s] = true
		o.running.Add(1)
	}
	o.mu.Unlock()
	if !ok {
		s.close(4001, "Unauthorized")
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				_ = conn.Close()
				return nil
			}
		}
	}
	return s
}

func (o *Orchestrator) release(s *socket) {
	_ = s.conn.Close()
	o.mu.Lock()
	delete(o.sockets, s)
	o.mu.Unlock()
	o.running.Done()
}

func (o *Orchestrator) handleSocket(w http.ResponseWriter, r *http.Request) {
	id := pathVar(r, "id")
	s := o.accept(w, r, func() string { return o.tokens[id] })
	if s == nil {
		return
	}
	defer o.release(s)
	s.executor = id
	s.conn.SetReadLimit(100 << 20)

	o.mu.Lock()
	// After a restart the token is good and the executor is not registered:
	// accepted, and everything it sends is dropped.
	if e := o.executors[id]; e != nil {
		if e.slot != nil {
			o.violate("overlap", "a socket was opened before the one before it was closed: "+id)
		}
		e.slot, e.Connected = s, true
		o.touch()
	}
	o.mu.Unlock()

	// The slot is free before the other side hears that the close is through,
	// so that whoever awaited it does not overlap.
	reply := s.conn.CloseHandler()
	s.conn.SetCloseHandler(func(code int, text string) error {
		o.vacate(s)
		return reply(code, text)
	})
	first := true
	for {
		_, frame, err := s.conn.ReadMessage()
		if err != nil {
			break
		}
		o.frame(s, frame, first)
		first = false
	}

	o.vacate(s)
}

// vacate says that a socket is closed.
func (o *Orchestrator) vacate(s *socket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.vacated {
		return
	}
	s.vacated = true
	if e := o.executors[s.executor]; e != nil && (e.slot == s || o.opt.OldSocketClobbers) {
		e.slot, e.Connected, e.DisconnectedAt = nil, false, o.now()
		o.touch()
	}
}

// frame checks and handles one frame.
func (o *Orchestrator) frame(s *socket, frame []byte, first bool) {
	dropped, strict := CheckFrame(frame)
	var e Event
	err := json.Unmarshal(frame, &e)
	e.ExecutorID = s.executor // serve overwrites it with the connection's
	e.Received = o.opt.Now()

	o.mu.Lock()
	if dropped != "" {
		o.violate("schema", dropped+": "+clip(frame))
	}
	for _, why := range strict {
		o.violate("strict", why+": "+clip(frame))
	}
	if first && e.Event != "executor.resync" {
		o.violate("first_frame", "the first frame is "+e.Event)
	}
	o.mu.Unlock()
	if err != nil || (dropped != "" && !o.opt.Built) {
		return
	}
	if h := o.opt.Hooks.BeforeEvent; h != nil {
		h(e)
	}
	if h := o.opt.Hooks.Drop; h != nil && h(e) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.executors[s.executor]
	if x == nil {
		o.dropped++
		return
	}
	x.LastEventTS = e.TS
	o.handleEvent(e)
	o.touch()
}

func clip(b []byte) string {
	if len(b) > 300 {
		return string(b[:300]) + "…"
	}
	return string(b)
}

// Push sends an event to an executor, as serve does with an operator's command;
// false if it is not connected.
func (o *Orchestrator) Push(executorID string, e Event) bool {
	o.mu.Lock()
	var s *socket
	if x := o.executors[executorID]; x != nil && x.Connected {
		s = x.slot
	}
	o.mu.Unlock()
	e.ExecutorID = executorID
	return s != nil && s.send(e) == nil
}
