package orchestrator

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// executor is one registration, with its one connection slot.
type executor struct {
	ID          string `json:"executor_id"`
	Name        string `json:"name"`
	Version     string `json:"version"`
	SpecVersion string `json:"spec_version"`
	Transport   struct {
		REST string `json:"rest"`
		WS   string `json:"ws"`
	} `json:"transport_endpoints"`
	Capabilities   []string `json:"capabilities"`
	Connected      bool     `json:"connected"`
	LastEventTS    string   `json:"last_event_ts,omitempty"`
	ActiveMissions int      `json:"active_mission_count"`
	RegisteredAt   string   `json:"registered_at"`
	DisconnectedAt string   `json:"disconnected_at,omitempty"`

	slot *socket
}

func (o *Orchestrator) now() string {
	return o.opt.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func (o *Orchestrator) handleRegister(w http.ResponseWriter, r *http.Request) {
	raw, v, err := readBody(r)
	if err != nil {
		fail(w, 400, "Invalid JSON body")
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if why := registerSchema(o.opt.Generation).check(v); why != "" {
		o.violate("schema", "register: "+why)
		if !o.opt.Built {
			fail(w, 400, "Invalid register payload: "+why)
			return
		}
	}
	e := &executor{}
	if err := json.Unmarshal(raw, e); err != nil {
		fail(w, 400, "Invalid register payload: "+err.Error())
		return
	}
	if strings.HasSuffix(e.Transport.REST, "/") {
		o.violate("rest_slash", "rest endpoint ends with a slash: "+e.Transport.REST)
	}
	token, ok := o.tokens[e.ID]
	if !ok {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		token = base64.RawURLEncoding.EncodeToString(secret)
		o.tokens[e.ID] = token
	}
	e.RegisteredAt = o.now()
	e.Connected = false // also while a socket is open
	if old := o.executors[e.ID]; old != nil {
		e.RegisteredAt, e.slot, e.LastEventTS = old.RegisteredAt, old.slot, old.LastEventTS
	} else {
		o.order = append(o.order, e.ID)
	}
	o.executors[e.ID] = e
	reply(w, 201, map[string]string{"executor_id": e.ID, "token": token, "registered_at": e.RegisteredAt})
}

// view is the executor as others read it; o.mu is held.
func (o *Orchestrator) view(e *executor) executor {
	v := *e
	if v.Capabilities == nil {
		v.Capabilities = []string{}
	}
	for _, m := range o.missions {
		if m.ExecutorID == e.ID && !terminal(m.State) {
			v.ActiveMissions++
		}
	}
	return v
}

func (o *Orchestrator) handleExecutors(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	all := []executor{}
	for _, id := range o.order {
		all = append(all, o.view(o.executors[id]))
	}
	o.mu.Unlock()
	reply(w, 200, map[string]any{"executors": all})
}

func (o *Orchestrator) handleExecutor(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	e := o.executors[pathVar(r, "id")]
	if e == nil {
		o.mu.Unlock()
		fail(w, 404, "Executor not found")
		return
	}
	v := o.view(e)
	o.mu.Unlock()
	reply(w, 200, v)
}

func (o *Orchestrator) handleDelete(w http.ResponseWriter, r *http.Request) {
	id := pathVar(r, "id")
	o.mu.Lock()
	token, known := o.tokens[id]
	if !known || !same(bearer(r), token) {
		o.mu.Unlock()
		fail(w, 401, "Unauthorized")
		return
	}
	e := o.executors[id]
	if e == nil {
		o.mu.Unlock()
		fail(w, 404, "Executor not found")
		return
	}
	delete(o.executors, id)
	o.order = slices.DeleteFunc(o.order, func(s string) bool { return s == id })
	slot := e.slot
	o.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	if slot != nil {
		slot.close(1000, "deregistered")
	}
}

// Connected waits until n executors are connected, or the time is over.
func (o *Orchestrator) Connected(n int, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for {
		o.mu.Lock()
		have, changed := 0, o.changed
		for _, e := range o.executors {
			if e.Connected {
				have++
			}
		}
		o.mu.Unlock()
		if have >= n {
			return true
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			return false
		}
	}
}

// touch wakes those who wait for a change; o.mu is held.
func (o *Orchestrator) touch() {
	close(o.changed)
	o.changed = make(chan struct{})
}
