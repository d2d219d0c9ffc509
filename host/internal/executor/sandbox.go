package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/mission"
)

// sandboxRegistration is the body of POST /api/sandboxes/register, the older
// path beside the executor's (contract 1.10).
type sandboxRegistration struct {
	Name         string   `json:"name"`
	GRPCEndpoint string   `json:"grpc_endpoint"` // the rest URL (rulings 8)
	WSEndpoint   string   `json:"ws_endpoint"`
	HTTPEndpoint string   `json:"http_endpoint"`
	InstanceID   string   `json:"instance_id"`
	Capabilities []string `json:"capabilities"`
	Version      string   `json:"version"`
}

// sandboxFrame is what the sandbox sends on its own socket.
type sandboxFrame struct {
	Type      string `json:"type"`
	AgentID   string `json:"agent_id"`
	SessionID string `json:"session_id,omitempty"`
	HITLID    string `json:"hitl_id,omitempty"`
	Prompt    string `json:"prompt,omitempty"`
	Context   string `json:"context,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

// questionGap is the shortest time between two looks at open questions.
const questionGap = 100 * time.Millisecond

// runSandbox keeps the sandbox link up, whatever becomes of the executor's.
func (x *Executor) runSandbox(ctx context.Context) {
	b := backoff{min: x.opt.Timings.BackoffMin, max: x.opt.Timings.BackoffMax}
	for ctx.Err() == nil {
		up := time.Now()
		err := x.connectSandbox(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(up) >= x.opt.Timings.StableAfter {
			b.reset()
		}
		wait := b.wait()
		x.log.Warn("sandbox link to the orchestrator is down", "error", err, "retry_in", wait)
		x.setSandbox(func(s *sandboxState) { s.connected, s.err = false, err.Error() })
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (x *Executor) setSandbox(change func(*sandboxState)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&x.sandbox)
}

func (x *Executor) connectSandbox(ctx context.Context) error {
	t := x.opt.Timings
	r := x.registration(x.capabilities())
	var got struct {
		SandboxID string `json:"sandbox_id"`
		Token     string `json:"token"`
	}
	err := x.serve.call(ctx, t.RequestWait, http.MethodPost, "/api/sandboxes/register", "", sandboxRegistration{
		Name: r.Name, GRPCEndpoint: r.Transport.REST, WSEndpoint: r.Transport.WS, HTTPEndpoint: r.Transport.REST,
		InstanceID: r.ExecutorID, Capabilities: r.Capabilities, Version: r.Version,
	}, &got)
	if err != nil {
		return fmt.Errorf("sandbox registration: %w", err)
	}
	if got.SandboxID == "" || got.Token == "" {
		return errors.New("sandbox registration: the answer has no sandbox_id or no token")
	}
	x.remember(got.Token)
	x.setSandbox(func(s *sandboxState) { s.id = got.SandboxID })
	sock, err := dial(ctx, x.opt.Endpoint, "/ws/sandbox/"+segment(got.SandboxID), got.Token, t, x.redact)
	if err != nil {
		return fmt.Errorf("sandbox socket: %w", err)
	}
	sock.start(func([]byte) {}, nil)
	x.setSandbox(func(s *sandboxState) { s.connected, s.err = true, "" })
	err = x.showQuestions(sock)
	sock.cancel(err)
	why, ours := sock.ended(x.redact)
	code := 0
	if ours {
		code = websocket.CloseNormalClosure
	}
	sock.close(code)
	return why
}

// showQuestions names the agents, then shows every open question of an owned
// mission once, until the socket ends.
func (x *Executor) showQuestions(sock *socket) error {
	for _, a := range x.opt.Engine.Agents() {
		if a.Healthy {
			if err := sendSandbox(sock, sandboxFrame{Type: "agent_connected", AgentID: a.Name}); err != nil {
				return err
			}
		}
	}
	shown := map[string]bool{}
	for {
		changed := x.opt.Outbox.OutboxChanged()
		still := map[string]bool{}
		for _, q := range x.opt.Engine.Questions() {
			if !shown[q.HITLID] {
				f, ok := x.questionFrame(sock.ctx, q)
				if !ok {
					continue
				}
				if err := sendSandbox(sock, f); err != nil {
					return err
				}
			}
			still[q.HITLID] = true
		}
		shown = still
		select { // a stream of events is no reason to look at every one
		case <-time.After(questionGap):
		case <-sock.ctx.Done():
		}
		select {
		case <-changed: // a question comes with an event
		case <-time.After(x.opt.Timings.QuestionPoll):
		case <-sock.ctx.Done():
			return context.Cause(sock.ctx)
		}
	}
}

// questionFrame is a question as the dashboard reads it; false: it is none of
// the orchestrator's.
func (x *Executor) questionFrame(ctx context.Context, q mission.Question) (sandboxFrame, bool) {
	view, err := x.opt.Engine.Mission(ctx, q.MissionID)
	if err != nil || view.Origin != mission.OriginOrchestrator {
		return sandboxFrame{}, false
	}
	f := sandboxFrame{
		Type: "hitl_input_required", AgentID: view.Agent, SessionID: q.SessionID,
		HITLID: q.HITLID, Prompt: q.Prompt, Context: q.Context,
	}
	if f.SessionID == "" {
		f.SessionID = q.MissionID // the member is required
	}
	if q.ExpiresAt != nil {
		f.ExpiresAt = wireTime(*q.ExpiresAt)
	}
	return f, true
}

func sendSandbox(sock *socket, f sandboxFrame) error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return sock.write(raw, nil)
}
