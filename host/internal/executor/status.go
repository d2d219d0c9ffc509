package executor

import (
	"net/http"
	"net/url"
	"time"
)

// Status is the body of GET /api/v1/aiwg/status (contract, section 0 rule 11):
// counts and link states, no objective, no token.
type Status struct {
	Configured    bool    `json:"configured"`
	Connected     bool    `json:"connected"`
	Endpoint      *string `json:"endpoint"` // without credentials
	SandboxID     *string `json:"sandbox_id"`
	ExecutorID    *string `json:"executor_id"`
	RegisterError *string `json:"executor_register_error"`

	Registered          bool     `json:"registered"`
	LinkError           *string  `json:"link_error"` // why the last connection ended, while it is down
	LastConnectedAt     *string  `json:"last_connected_at"`
	BackoffMS           int64    `json:"backoff_ms"` // the wait that is running; 0: none
	Capabilities        []string `json:"capabilities"`
	OutboxPending       int      `json:"outbox_pending"`
	OutboxUndeliverable int      `json:"outbox_undeliverable"`
	SandboxConnected    bool     `json:"sandbox_connected"`
	SandboxError        *string  `json:"sandbox_error"`
}

// linkState is what the link loop knows; Executor.mu guards it.
type linkState struct {
	connected     bool
	registerError string
	linkError     string
	lastConnected time.Time
	backoff       time.Duration
	capabilities  []string
}

type sandboxState struct {
	id        string
	connected bool
	err       string
}

// Status reads the link's state.
func (x *Executor) Status(r *http.Request) Status {
	s := Status{Configured: x.configured(), Capabilities: []string{}}
	if !s.Configured {
		return s
	}
	s.Endpoint = text(endpointText(x.opt.Endpoint))
	s.ExecutorID = text(x.opt.ID)
	s.Registered = x.token.Load() != nil
	if x.opt.Outbox != nil {
		var err error
		if s.OutboxPending, s.OutboxUndeliverable, err = x.opt.Outbox.OutboxStats(r.Context()); err != nil {
			x.log.Warn("outbox cannot be counted", "error", err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s.Connected = x.link.connected
	s.RegisterError = text(x.link.registerError)
	if !s.Connected {
		s.LinkError = text(x.link.linkError)
	}
	if t := x.link.lastConnected; !t.IsZero() {
		s.LastConnectedAt = text(wireTime(t))
	}
	s.BackoffMS = x.link.backoff.Milliseconds()
	s.Capabilities = append(s.Capabilities, x.link.capabilities...)
	s.SandboxID, s.SandboxConnected, s.SandboxError = text(x.sandbox.id), x.sandbox.connected, text(x.sandbox.err)
	return s
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// endpointText is where an endpoint is; its path, like its credentials, may be a
// secret.
func endpointText(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "(not a URL)"
	}
	return u.Scheme + "://" + u.Host
}

// StatusHandler serves GET /api/v1/aiwg/status; it takes no credential.
func (x *Executor) StatusHandler(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, x.Status(r))
}

// ReconnectHandler serves POST /api/v1/aiwg/reconnect. It checks no credential:
// mount it behind the operator's.
func (x *Executor) ReconnectHandler(w http.ResponseWriter, _ *http.Request) {
	if !x.configured() {
		problem{Type: "executor-unavailable", Status: 503, Detail: "no orchestrator is configured on this host"}.write(w)
		return
	}
	x.Reconnect()
	writeJSON(w, http.StatusAccepted, map[string]bool{"reconnecting": true})
}

func (x *Executor) setLink(change func(*linkState)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&x.link)
}
