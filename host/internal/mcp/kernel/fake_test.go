package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

const (
	sess = "wc_sess_abcdefghijklmnop"
	msg  = "wc_msg_abcdefghijklmnop"
	// sentinel stands in every place that may hold a secret.
	sentinel = "SENTINEL-7f3a"
)

// world is a domain that does nothing but write down, in order, what it was
// asked, and answer what a test wants.
type world struct {
	mu     sync.Mutex
	events []string
	errs   map[string]error // by method or tool

	results map[string]func() Result // by tool
	rows    []rowEnd
}

type rowEnd struct {
	main          workflow.MainOutcome
	skip          string
	before, after *workflow.PhaseOutcome
}

func (w *world) did(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, what)
	return w.errs[what]
}

func (w *world) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e == what {
			n++
		}
	}
	return n
}

func (w *world) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) Open(workflow.Owner, workflow.NewCall) (*workflow.Call, error) {
	return &workflow.Call{ID: "wc_inv_abcdefghijklmnop"}, w.did("open")
}

func (w *world) Refuse(_ context.Context, _ *workflow.Call, b, a *workflow.PhaseOutcome) error {
	w.rows = append(w.rows, rowEnd{main: workflow.MainOutcome{State: workflow.NeverStarted}, before: b, after: a})
	return w.did("refuse")
}
func (w *world) Intend(context.Context, *workflow.Call, string) error { return w.did("intend") }
func (w *world) Settle(ctx context.Context, _ *workflow.Call, m workflow.MainOutcome, skip string) error {
	w.rows = append(w.rows, rowEnd{main: m, skip: skip})
	return errors.Join(ctx.Err(), w.did("settle"))
}
func (w *world) Note(ctx context.Context, _ *workflow.Call, p workflow.Phase, _ workflow.PhaseOutcome) error {
	return errors.Join(ctx.Err(), w.did("note "+string(p)))
}
func (w *world) SettleStarted(context.Context, workflow.Owner, string, workflow.MainOutcome) error {
	return nil
}
func (w *world) Close(*workflow.Call) { _ = w.did("close") }
func (w *world) Outcome(context.Context, workflow.Caller, workflow.GetOutcome) (workflow.CallOutcome, error) {
	return workflow.CallOutcome{}, nil
}
func (w *world) Recorder(context.Context, workflow.Owner, string) (workflow.SessionView, error) {
	return workflow.SessionView{}, w.did("recorder")
}
func (w *world) ResolveMessage(context.Context, workflow.Caller, workflow.ResolveMessage) (workflow.ResolveResult, error) {
	return workflow.ResolveResult{}, w.did("resolve")
}
func (w *world) Ack(_ context.Context, _ workflow.Caller, _ string, ids []string) (workflow.AckResult, error) {
	return workflow.AckResult{Accepted: len(ids)}, w.did("ack")
}
func (w *world) Attention(context.Context, workflow.Caller, string) (workflow.Attention, error) {
	return workflow.Attention{}, w.did("attention")
}

type nothing struct {
	Secret string `wc:"secret"`
}

// tool is a tool of the world: it writes that it ran and gives what the test
// has set, by default success.
func tool[T any](w *world, d Def) *Tool {
	if d.Fields == 0 && !d.Hidden {
		d.Fields = envelope.All
	}
	return NewTool(d, func(ctx context.Context, by By, _ T) Result {
		if err := w.did(d.Name); err != nil {
			return FromError(err)
		}
		if by.Phase != "" && (by.ToolUseID != "" || by.CallID != "" || by.Cell) {
			panic("a phase has what belongs to main")
		}
		if f := w.results[d.Name]; f != nil {
			return f()
		}
		return Done(map[string]any{"body": sentinel, "task_outcome": map[string]any{"blocking": false}}, Changed)
	})
}

// kernelOf makes a kernel over a world with the canonical tools, an ordinary
// one (work), a closing one and one of each refused class.
func kernelOf(t *testing.T, w *world) *Kernel {
	t.Helper()
	const manage, collaborate = "communication:manage", "session:collaborate"
	k, err := New(Options{Service: w, Log: hclog.NewNullLogger(), Tools: []*Tool{
		tool[workflow.CheckpointGoal](w, Def{Name: "checkpoint_goal", Scope: manage}),
		tool[workflow.UpdateGoal](w, Def{Name: "update_goal", Scope: manage}),
		tool[workflow.ConsumeWake](w, Def{Name: "consume_agent_wake", Scope: manage}),
		tool[workflow.Heartbeat](w, Def{Name: "heartbeat_agent_task_attempt", Scope: manage}),
		tool[workflow.UpdateSessionContext](w, Def{Name: "update_session_context", Scope: collaborate}),
		tool[workflow.CloseSession](w, Def{Name: "close_session", Scope: collaborate}),
		tool[workflow.CompleteMessage](w, Def{Name: "complete_session_message", Scope: collaborate}),
		tool[workflow.ResolveMessage](w, Def{Name: "resolve_session_message", Scope: collaborate}),
		Target(tool[workflow.FinishTask](w, Def{Name: "finish_coding_task", Scope: "runtime:read", Closeout: true}),
			func(f workflow.FinishTask) string { return f.SessionID }),
		tool[nothing](w, Def{Name: "work", Scope: "work"}),
		tool[nothing](w, Def{Name: "plugin_gateway", Fields: envelope.Record | envelope.Ack}),
		tool[nothing](w, Def{Name: "browser_gateway", Fields: envelope.All &^ envelope.Control}),
		tool[nothing](w, Def{Name: "app", Fields: envelope.Ack | envelope.Context}),
		tool[nothing](w, Def{Name: "hidden", Hidden: true}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newWorld() *world { return &world{errs: map[string]error{}, results: map[string]func() Result{}} }

// payloads are good payloads with a sentinel in each place for a secret or text.
func payloads() map[envelope.Kind]string {
	return map[envelope.Kind]string{
		envelope.GoalProgress:         `{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"summary":"` + sentinel + `","idempotency_key":"` + sentinel + `"}`,
		envelope.WakeConsume:          `{"agent_id":"a","endpoint_id":"e","expected_controller_generation":1,"wake_id":"w","consume_token":"` + sentinel + `"}`,
		envelope.AttemptHeartbeat:     `{"task_id":"t","attempt_id":"a","assignee_agent_id":"g","attempt_fence":"` + sentinel + `","attempt_controller_generation":1}`,
		envelope.SessionContextUpdate: `{"project":"p","session_id":"` + sess + `","execution_context":{}}`,
		envelope.GoalCompletion:       `{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"idempotency_key":"` + sentinel + `","terminal_reason":"` + sentinel + `"}`,
		envelope.SessionClose:         `{"session_id":"` + sess + `"}`,
		envelope.TodoCompletion:       `{"session_id":"` + sess + `","message_id":"` + msg + `","answer":"` + sentinel + `","completion_key":"` + sentinel + `","expected_assignment_fence":"` + sentinel + `"}`,
	}
}

// control writes the control member of an envelope; empty kinds are left out.
func control(before, after envelope.Kind) string {
	all, out := payloads(), map[string]any{}
	if before != "" {
		out["before"] = map[string]any{string(before): json.RawMessage(all[before])}
	}
	if after != "" {
		out["after_success"] = map[string]any{string(after): json.RawMessage(all[after])}
	}
	text, _ := json.Marshal(out)
	return string(text)
}

// caller may do everything, over the revision that has envelopes.
func caller() Caller {
	return Caller{Owner: "mission", Scopes: []string{AllScopes}, Transport: MCP, Caps: Capabilities{ControlSidecars: true}, ToolUseID: "toolu_1", Cell: true}
}

// callOf makes a call; wc is the envelope's text, empty for none.
func callOf(t testing.TB, k *Kernel, name, args, wc string) *Call {
	t.Helper()
	c := &Call{Caller: caller(), Tool: k.Tool(name)}
	var err error
	if c.Args, err = strict.Parse([]byte(args)); err != nil {
		t.Fatal(err)
	}
	if wc != "" {
		v, err := strict.Parse([]byte(wc))
		if err != nil {
			t.Fatal(err)
		}
		if c.Envelope, err = envelope.New().Parse(v, envelope.All); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

const finish = `{"project":"p","session_id":"` + sess + `"}`
