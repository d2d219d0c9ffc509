package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// order is what serve itself reads of a dispatch; the rest is passed on.
type order struct {
	MissionID   string          `json:"mission_id"`
	Objective   string          `json:"objective"`
	LongRunning bool            `json:"long_running"`
	Filter      *filter         `json:"executor_filter"`
	Instance    string          `json:"a2a_instance_id"`
	Metadata    json.RawMessage `json:"metadata"`
}

type filter struct {
	ExecutorID   *string  `json:"executor_id"`
	Capabilities []string `json:"capabilities"`
}

func (o *Orchestrator) handleDispatch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		fail(w, 400, "Invalid JSON body")
		return
	}
	status, answer := o.Dispatch(r.Context(), body)
	reply(w, status, answer)
}

// Dispatch is POST /api/v1/sessions/{id}/dispatch by an operator; the session
// id is not passed on. answer holds mission_id, executor_id, status and
// estimated_start, or error and detail.
func (o *Orchestrator) Dispatch(ctx context.Context, body []byte) (status int, answer map[string]any) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return 400, map[string]any{"error": "Invalid JSON body"}
	}
	if !o.opt.Built {
		if why := dispatchSchema(o.opt.Generation, o.opt.AllowAgentID).check(v); why != "" {
			return 400, map[string]any{"error": "Invalid dispatch payload: " + why}
		}
	}
	var d order
	if err := json.Unmarshal(body, &d); err != nil {
		return 400, map[string]any{"error": "Invalid dispatch payload: " + err.Error()}
	}
	x, token, why := o.pick(d)
	if why != "" {
		return 503, map[string]any{"error": why}
	}
	return o.forward(ctx, d, x, token, body)
}

// pick is serve's pickByFilter: first registered wins, vm and container before
// anything else.
func (o *Orchestrator) pick(d order) (x executor, token, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var want []string
	pinned := ""
	if d.Filter != nil {
		want = slices.Clone(d.Filter.Capabilities)
		if d.Filter.ExecutorID != nil {
			pinned = *d.Filter.ExecutorID
		}
	}
	if pinned != "" {
		want = nil
	}
	if d.LongRunning {
		want = append(want, "resumable")
	}
	var found *executor
	for _, id := range o.order {
		e := o.executors[id]
		if !e.Connected || (pinned != "" && e.ID != pinned) {
			continue
		}
		if slices.ContainsFunc(want, func(c string) bool { return !slices.Contains(e.Capabilities, c) }) {
			continue
		}
		if found == nil || (isolated(e) && !isolated(found)) {
			found = e
		}
	}
	switch {
	case found != nil:
		return *found, o.tokens[found.ID], ""
	case d.LongRunning:
		return executor{}, "", "no_resumable_executor_available"
	default:
		return executor{}, "", "no_executor_available"
	}
}

func isolated(e *executor) bool {
	return slices.Contains(e.Capabilities, "isolation:vm") || slices.Contains(e.Capabilities, "isolation:container")
}

func (o *Orchestrator) forward(ctx context.Context, d order, x executor, token string, body []byte) (int, map[string]any) {
	if o.opt.Generation >= 2 {
		status, detail, err := o.messageSend(ctx, d, x, token)
		switch {
		case err != nil:
			return o.forwardFailed(d, x, "executor_unreachable", "")
		case status != 404:
			return o.forwardFailed(d, x, fmt.Sprintf("v2 dispatch failed: %d", status), detail)
		}
	}
	status, text, err := o.call(ctx, x.Transport.REST+"/dispatch", token, body, nil)
	if err != nil {
		return o.forwardFailed(d, x, "executor_unreachable", "")
	}
	if status < 200 || status > 299 {
		why := fmt.Sprintf("executor returned %d", status)
		if o.opt.Generation >= 2 {
			why = fmt.Sprintf("v1 dispatch failed: %d %s", status, text)
		}
		return o.forwardFailed(d, x, why, text)
	}
	var got struct {
		EstimatedStart any `json:"estimated_start"`
	}
	_ = json.Unmarshal([]byte(text), &got)
	if h := o.opt.Hooks.BeforeAssign; h != nil {
		h(d.MissionID)
	}
	o.mu.Lock()
	o.assign(d.MissionID, x.ID)
	o.mu.Unlock()
	answer := map[string]any{"mission_id": d.MissionID, "executor_id": x.ID, "status": "assigned"}
	if s, ok := got.EstimatedStart.(string); ok {
		answer["estimated_start"] = s
	}
	if o.opt.Generation >= 2 {
		answer["dispatch_path"] = "v1-fallback"
	}
	return 202, answer
}

// forwardFailed marks the mission failed, a running one of that id too.
func (o *Orchestrator) forwardFailed(d order, x executor, why, detail string) (int, map[string]any) {
	o.mu.Lock()
	r := o.missions[d.MissionID]
	if r == nil {
		r = o.assign(d.MissionID, x.ID)
	}
	r.State, r.Error, r.CompletedAt = "failed", why, o.now()
	o.touch()
	o.mu.Unlock()
	if why == "executor_unreachable" {
		return 502, map[string]any{"error": why}
	}
	return 502, map[string]any{"error": "executor_forward_failed", "detail": detail}
}

func (o *Orchestrator) messageSend(ctx context.Context, d order, x executor, token string) (int, string, error) {
	instance := d.Instance
	if instance == "" {
		instance = x.ID
	}
	body, err := json.Marshal(map[string]any{"message": map[string]any{
		"messageId": d.MissionID, "role": "user",
		"parts":    []any{map[string]string{"kind": "text", "text": d.Objective}},
		"metadata": map[string]any{"long_running": d.LongRunning, "metadata": d.Metadata},
	}})
	if err != nil {
		return 0, "", err
	}
	const ext = "https://agentic-sandbox.aiwg.io/extensions/"
	return o.call(ctx, x.Transport.REST+"/agents/"+url.PathEscape(instance)+"/v1/messages:send", token, body, map[string]string{
		"Accept": "application/json", "A2a-Extensions": ext + "runtime/v1, " + ext + "idempotency/v1",
	})
}

// call posts to an executor and returns at most 64 KiB of its answer.
func (o *Orchestrator) call(ctx context.Context, to, token string, body []byte, header map[string]string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "node")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, strings.TrimSpace(string(text)), err
}
