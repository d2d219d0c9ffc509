package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// mcpRevision is the revision of MCP that has control envelopes.
const mcpRevision = "2026-07-28"

// agentCalls is an agent that calls tools over MCP.
type agentCalls struct {
	r       *rig
	url     string
	token   string
	goal    string
	session string
	rev     int64
}

// tool calls a tool and reads its output.
func (a *agentCalls) tool(ctx context.Context, name string, args, into any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": mcpRevision, "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
		"name":  name, "arguments": args}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": mcpRevision,
		"Mcp-Method": "tools/call", "Mcp-Name": name, "Authorization": "Bearer " + a.token} {
		req.Header.Set(k, v)
	}
	resp, err := a.r.api.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Result struct {
			Content struct {
				Success bool            `json:"success"`
				Output  json.RawMessage `json:"output"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || !answer.Result.Content.Success {
		return fmt.Errorf("%s: %d %.300s", name, resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Content.Output, into)
}

// todo posts a todo and reads its fence.
func (a *agentCalls) todo(ctx context.Context) (id, fence string, err error) {
	var posted struct {
		Message struct {
			ID string `json:"message_id"`
		} `json:"message"`
	}
	if err := a.tool(ctx, "post_session_message", map[string]any{"session_id": a.session, "kind": "todo", "message": "run the tests"}, &posted); err != nil {
		return "", "", err
	}
	var as struct {
		Fence string `json:"assignment_fence"`
	}
	err = a.tool(ctx, "get_session_assignment", map[string]any{"session_id": a.session, "message_id": posted.Message.ID}, &as)
	return posted.Message.ID, as.Fence, err
}

// composite makes one call with both phases: progress before, a todo after.
func (a *agentCalls) composite(ctx context.Context, args map[string]any) (time.Duration, error) {
	todo, fence, err := a.todo(ctx)
	if err != nil {
		return 0, err
	}
	with := map[string]any{"_wc": map[string]any{"control": map[string]any{
		"before": map[string]any{"goal_progress": map[string]any{"goal_id": a.goal, "expected_revision": a.rev, "summary": "edited a file", "idempotency_key": fmt.Sprint("k", a.rev)}},
		"after_success": map[string]any{"todo_completion": map[string]any{"session_id": a.session, "message_id": todo, "answer": "they pass",
			"completion_key": todo, "expected_assignment_fence": fence}},
	}}}
	for k, v := range args {
		with[k] = v
	}
	var out struct {
		Control struct {
			Before struct {
				Success  bool  `json:"success"`
				Revision int64 `json:"revision"`
			} `json:"before"`
			After struct {
				Success bool `json:"success"`
			} `json:"after_success"`
		} `json:"control"`
	}
	began := time.Now()
	err = a.tool(ctx, "get_goal", with, &out)
	took := time.Since(began)
	if err == nil && (!out.Control.Before.Success || !out.Control.After.Success) {
		err = fmt.Errorf("a phase has failed: %+v", out.Control)
	}
	a.rev = out.Control.Before.Revision
	return took, err
}

// measureComposite measures what both phases of a control envelope add to a call,
// over HTTP, on a host of its own: the same tool without and with them, in turn.
// The phases are four durable commits one after the other (before, the intent,
// the end, after); nothing else is going on. Baseline: the plain call.
func measureComposite(b *bench) error {
	r, err := startedRig(b, agentBlock("agent-01", 1, 100, ""))
	if err != nil {
		return err
	}
	defer r.clean()
	var task struct {
		Token string `json:"token"`
	}
	if err := r.call(b.ctx, "POST", "/tasks", map[string]any{"task_id": "composite", "objective": "bench"}, &task); err != nil {
		return err
	}
	a := &agentCalls{r: r, url: "http://localhost/mcp", token: task.Token}
	var ids struct {
		Goal    string `json:"goal_id"`
		Session string `json:"session_id"`
		Rev     int64  `json:"goal_revision"`
	}
	if err := a.tool(b.ctx, "get_mission_context", map[string]any{}, &ids); err != nil {
		return err
	}
	a.goal, a.session, a.rev = ids.Goal, ids.Session, ids.Rev
	args := map[string]any{"goal_id": a.goal}
	var plain, added []float64
	for range b.rounds(400, 40) {
		began := time.Now()
		if err := a.tool(b.ctx, "get_goal", args, nil); err != nil {
			return err
		}
		alone := ms(time.Since(began))
		took, err := a.composite(b.ctx, args)
		if err != nil {
			return err
		}
		plain, added = append(plain, alone), append(added, ms(took)-alone)
	}
	b.emit("composite_overhead_p50_ms", "ms", median(added), median(plain), len(added), spread(added))
	return nil
}
