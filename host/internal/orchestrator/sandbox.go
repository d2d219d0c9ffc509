package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
)

// sandbox is a registration of the older kind.
type sandbox struct {
	ID           string
	Token        string
	HTTPEndpoint string
	Connected    bool
	Frames       int
	questions    map[string]SandboxQuestion
}

// SandboxQuestion is a question that a sandbox shows on the dashboard.
type SandboxQuestion struct {
	SandboxID string `json:"sandbox_id"`
	AgentID   string `json:"agent_id"`
	SessionID string `json:"session_id"`
	HITLID    string `json:"hitl_id"`
	Prompt    string `json:"prompt"`
	Context   string `json:"context,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

func (o *Orchestrator) handleSandbox(w http.ResponseWriter, r *http.Request) {
	raw, v, err := readBody(r)
	if err != nil {
		fail(w, 400, "Invalid JSON body")
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if why := sandboxSchema.check(v); why != "" {
		o.violate("schema", "sandbox register: "+why)
		fail(w, 400, why)
		return
	}
	var body struct {
		HTTP     string `json:"http_endpoint"`
		Instance string `json:"instance_id"`
	}
	_ = json.Unmarshal(raw, &body)
	id := body.Instance
	if id == "" {
		id = uuid.NewString()
	}
	s := &sandbox{ID: id, Token: uuid.NewString(), HTTPEndpoint: body.HTTP, questions: map[string]SandboxQuestion{}}
	o.sandboxes[id] = s
	reply(w, 201, map[string]string{"sandbox_id": s.ID, "token": s.Token})
}

func (o *Orchestrator) handleSandboxSocket(w http.ResponseWriter, r *http.Request) {
	id := pathVar(r, "id")
	var box *sandbox
	s := o.accept(w, r, func() string {
		if box = o.sandboxes[id]; box == nil {
			return ""
		}
		return box.Token
	})
	if s == nil {
		return
	}
	defer o.release(s)
	o.mu.Lock()
	box.Connected = true
	o.touch()
	o.mu.Unlock()
	for {
		_, frame, err := s.conn.ReadMessage()
		if err != nil {
			break
		}
		o.sandboxFrame(box, frame)
	}
	o.mu.Lock()
	box.Connected = false
	o.touch()
	o.mu.Unlock()
}

func (o *Orchestrator) sandboxFrame(box *sandbox, frame []byte) {
	var f struct {
		Type string `json:"type"`
		SandboxQuestion
	}
	err := json.Unmarshal(frame, &f)
	o.mu.Lock()
	defer o.mu.Unlock()
	box.Frames++
	switch {
	case err != nil || f.Type == "":
		o.violate("schema", "sandbox frame: "+clip(frame))
	case f.Type == "hitl_input_required":
		if f.AgentID == "" || f.SessionID == "" || f.HITLID == "" || f.Prompt == "" {
			o.violate("schema", "hitl_input_required lacks a member: "+clip(frame))
			break
		}
		f.SandboxID = box.ID
		box.questions[f.HITLID] = f.SandboxQuestion
	}
	o.touch()
}

func (o *Orchestrator) handleHITL(w http.ResponseWriter, _ *http.Request) {
	reply(w, 200, map[string]any{"hitl": o.SandboxQuestions()})
}

// SandboxQuestions are the questions that sandboxes have asked.
func (o *Orchestrator) SandboxQuestions() []SandboxQuestion {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := []SandboxQuestion{}
	for _, box := range o.sandboxes {
		for _, q := range box.questions {
			all = append(all, q)
		}
	}
	return all
}

// SandboxConnected says whether a sandbox of this id has its socket open.
func (o *Orchestrator) SandboxConnected(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	box := o.sandboxes[id]
	return box != nil && box.Connected
}

func (o *Orchestrator) handleSandboxAnswer(w http.ResponseWriter, r *http.Request) {
	raw, _, err := readBody(r)
	var body struct {
		Text string `json:"text"`
	}
	if err != nil || json.Unmarshal(raw, &body) != nil {
		fail(w, 400, "Invalid JSON body")
		return
	}
	status := o.AnswerSandbox(r.Context(), pathVar(r, "id"), body.Text)
	reply(w, status, map[string]bool{"ok": status < 300})
}

// AnswerSandbox posts an answer to the sandbox that asked, without any
// credential, as serve does. It returns the sandbox's status, 404 for an
// unknown question, 502 when the sandbox cannot be reached.
func (o *Orchestrator) AnswerSandbox(ctx context.Context, hitlID, answer string) int {
	o.mu.Lock()
	var box *sandbox
	for _, b := range o.sandboxes {
		if _, ok := b.questions[hitlID]; ok {
			box = b
		}
	}
	o.mu.Unlock()
	if box == nil {
		return 404
	}
	body, _ := json.Marshal(map[string]string{"text": answer})
	to := strings.TrimSuffix(box.HTTPEndpoint, "/") + "/api/v1/hitl/" + url.PathEscape(hitlID) + "/respond"
	status, _, err := o.call(ctx, to, "", bytes.TrimSpace(body), nil)
	if err != nil {
		return 502
	}
	if status < 300 {
		o.mu.Lock()
		delete(box.questions, hitlID)
		o.mu.Unlock()
	}
	return status
}
