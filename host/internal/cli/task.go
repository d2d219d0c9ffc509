package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// taskStatus is a task's status as far as it is shown.
type taskStatus struct {
	Mode     string `json:"mode"`
	State    string `json:"state"`
	Reason   string `json:"state_reason"`
	Boundary string `json:"boundary"`
	Epoch    uint64 `json:"epoch"`
	Intent   *struct {
		Goal    string     `json:"goal"`
		Expires *time.Time `json:"expires"`
	} `json:"intent"`
	Plan         []json.RawMessage `json:"plan"`
	Findings     []finding         `json:"findings"`
	Risk         *string           `json:"risk"`
	NotEvaluated []string          `json:"not_evaluated"`
	Budget       struct {
		MaxCost    *float64 `json:"max_cost"`
		Cost       float64  `json:"current_cost"`
		MaxTokens  *int64   `json:"max_tokens"`
		Tokens     int64    `json:"current_tokens"`
		CostOnHold float64  `json:"reserved"`
	} `json:"budget"`
	Pending []struct {
		DecisionID string          `json:"decision_id"`
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"`
		Reason     string          `json:"reason"`
		ExpiresAt  *time.Time      `json:"expires_at"`
	} `json:"pending_approvals"`
	Running    []taskCall     `json:"running"`
	Unresolved []taskCall     `json:"unresolved"`
	Counters   map[string]int `json:"counters"`
	Access     struct {
		State   string  `json:"state"`
		Issuers issuers `json:"issuers"`
	} `json:"revocation"`
	AuditErrors []string `json:"audit_errors"`
	Head        struct {
		Sequence uint64 `json:"sequence"`
		Digest   string `json:"digest"`
	} `json:"head"`
}

type finding struct {
	Stage   string `json:"stage"`
	Rule    string `json:"rule"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

type taskCall struct {
	InvocationID string     `json:"invocation_id"`
	Tool         string     `json:"tool_name"`
	StartedAt    time.Time  `json:"started_at"`
	Cancel       *time.Time `json:"cancel_requested"`
}

// counterWords are the counters in the order of a call's life.
func counterWords() []string {
	return []string{"proposed", "allowed", "warned", "blocked", "challenged", "paused", "suspended", "executed", "completed", "failed"}
}

// taskFollow is how often a followed task's status is looked at.
const taskFollow = 250 * time.Millisecond

// taskStatus shows a task, and with follow what happens to it until it ends.
func (c *client) taskStatus(ctx context.Context, w io.Writer, task string, follow, asJSON bool) error {
	if asJSON {
		return c.snapshots(ctx, w, task, follow)
	}
	st, _, err := c.readTask(ctx, task)
	if err != nil {
		return err
	}
	var m mission
	if _, err := c.get(ctx, "/api/v1/missions/"+segment(task), &m); err != nil {
		return named(err, "task", task)
	}
	var list struct {
		Questions []question `json:"questions"`
	}
	if _, err := c.get(ctx, "/api/v1/hitl", &list); err != nil {
		return err
	}
	showMission(w, &m)
	st.show(w, task)
	for _, q := range list.Questions {
		if q.MissionID == task && !q.approval() {
			line(w, "asks", fmt.Sprintf("%s (airlock hitl respond %s TEXT)", strings.TrimSpace(q.Prompt), shellQuote(q.HITLID)))
		}
	}
	if !follow || m.terminal() {
		return nil
	}
	n := narrator{tools: map[string]string{}}
	return c.follow(ctx, task, st.Head.Sequence, func(ev event) error {
		n.tell(w, &ev)
		if ev.Kind == "ended" {
			return errEnough
		}
		return nil
	})
}

// snapshots prints the status as the host sends it, formatted; with follow again
// whenever the journal has gone on, until the task has ended.
func (c *client) snapshots(ctx context.Context, w io.Writer, task string, follow bool) error {
	for shown := uint64(0); ; {
		st, text, err := c.readTask(ctx, task)
		if err != nil {
			return err
		}
		if st.Head.Sequence != shown || !follow {
			shown = st.Head.Sequence
			if err := showJSON(w, text); err != nil {
				return err
			}
		}
		if !follow || st.State == "ENDED" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(taskFollow):
		}
	}
}

func (c *client) readTask(ctx context.Context, task string) (*taskStatus, []byte, error) {
	var st taskStatus
	text, err := c.get(ctx, "/tasks/"+segment(task)+"/status", &st)
	return &st, text, named(err, "task", task)
}

// show words what the gate knows of a task.
func (st *taskStatus) show(w io.Writer, task string) {
	gate := st.State
	if st.Reason != "" && st.State != "ENDED" {
		gate += " (" + st.Reason + ")"
	}
	line(w, "gate", gate)
	line(w, "mode", st.Mode)
	if st.Boundary == "none" {
		line(w, "boundary", "none: this runtime's calls are not governed one by one")
	}
	line(w, "epoch", fmt.Sprint(st.Epoch))
	if st.Intent != nil {
		line(w, "intent", st.Intent.Goal)
	}
	if len(st.Plan) > 0 {
		line(w, "plan", fmt.Sprintf("%d steps", len(st.Plan)))
	}
	if st.Risk != nil {
		line(w, "risk", *st.Risk)
	}
	if len(st.NotEvaluated) > 0 {
		line(w, "not evaluated", strings.Join(st.NotEvaluated, ", "))
	}
	for _, f := range st.Findings {
		line(w, "finding", strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", f.Outcome, f.Stage, f.Rule, f.Reason)))
	}
	line(w, "budget", st.budget())
	var counts []string
	for _, word := range counterWords() {
		if n := st.Counters[word]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, word))
		}
	}
	line(w, "calls", strings.Join(counts, ", "))
	for _, r := range st.Running {
		text := fmt.Sprintf("%s %s since %s", r.Tool, r.InvocationID, r.StartedAt.Local().Format(time.TimeOnly))
		if r.Cancel != nil {
			text += ", asked to cancel"
		}
		line(w, "running", text)
	}
	for _, r := range st.Unresolved {
		line(w, "unresolved", fmt.Sprintf("%s (airlock resolve %s %s OUTCOME)", r.Tool, shellQuote(task), r.InvocationID))
	}
	for _, p := range st.Pending {
		args := string(p.Args)
		if args == "" || args == "null" {
			args = "(arguments are not kept)"
		}
		line(w, "approval", fmt.Sprintf("%s %s: %s (airlock approve %s approve_once|reject|…)", p.Tool, cut(args, 200), p.Reason, p.DecisionID))
	}
	if st.Access.State != "" && st.Access.State != "none" {
		text := st.Access.State
		if waived := st.Access.Issuers.with("waived"); len(waived) > 0 {
			text += ", but NOT known to be revoked at " + strings.Join(waived, ", ") + " (waived)"
		}
		line(w, "access", text)
		for _, name := range slices.Sorted(maps.Keys(st.Access.Issuers)) {
			line(w, "issuer", st.Access.Issuers.line(name))
		}
	}
	for _, text := range st.AuditErrors {
		line(w, "audit error", text)
	}
	line(w, "journal", fmt.Sprintf("%d events, %.16s…", st.Head.Sequence, st.Head.Digest))
}

func (st *taskStatus) budget() string {
	var parts []string
	if b := st.Budget; b.MaxCost != nil {
		parts = append(parts, fmt.Sprintf("%.4f of %.2f USD", b.Cost, *b.MaxCost))
	}
	if b := st.Budget; b.MaxTokens != nil {
		parts = append(parts, fmt.Sprintf("%d of %d tokens", b.Tokens, *b.MaxTokens))
	}
	return strings.Join(parts, ", ")
}
