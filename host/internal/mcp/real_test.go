package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/tools"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// real is the endpoint over the real domain and the real store. Its commands
// are the only thing that is not real: they count.
type real struct {
	t        *testing.T
	url      string
	keeper   *workflow.Keeper
	store    *store.Store
	commands atomic.Int64
	exit     atomic.Int64 // exit code of commands
	deny     atomic.Bool
	log      *strings.Builder
	logMu    sync.Mutex
	answers  []string // every answer that was given
	ctx      workflow.MissionContext
}

func (r *real) AdmitCall(_ context.Context, _ string, c engine.CellCall) (engine.AdmittedCall, error) {
	if r.deny.Load() {
		return engine.AdmittedCall{}, &engine.Denied{Outcome: "BLOCK", Reason: "a rule"}
	}
	return engine.AdmittedCall{InvocationID: "inv", Args: c.Args}, nil
}
func (r *real) EndCall(context.Context, string, engine.AdmittedCall, string, time.Duration) {}
func (r *real) Exec(context.Context, string, engine.CellCommand) (engine.CellResult, error) {
	r.commands.Add(1)
	return engine.CellResult{ExitCode: int(r.exit.Load()), Stdout: []byte("out")}, nil
}
func (r *real) AskOperator(context.Context, string, string) (string, error) { return "yes", nil }

func (r *real) Write(p []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(p)
}

func newReal(t *testing.T) *real {
	t.Helper()
	dir := t.TempDir()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = h.Close() })
	r := &real{t: t, store: s, log: &strings.Builder{}}
	log := hclog.New(&hclog.LoggerOptions{Output: r, Level: hclog.Trace})
	r.keeper = workflow.New(workflow.Options{Store: store.Workflow{S: s}, Key: []byte("0123456789abcdef0123456789abcdef")})
	list := tools.All(r.keeper, &tools.Effects{Runtime: r, Now: time.Now, Go: func(f func(context.Context)) { go f(context.Background()) },
		Project: func(_ context.Context, o workflow.Owner) (string, error) { return workflow.Project(o), nil },
		Ended:   func(workflow.Owner, string, workflow.MainOutcome) {}})
	k, err := kernel.New(kernel.Options{Service: r.keeper, Tools: list, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(Options{Kernel: k, Log: log, Token: func(_ context.Context, token string) (workflow.Owner, []string, bool) {
		return workflow.Owner(token), tools.Scopes(), true
	}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv.HTTP())
	t.Cleanup(func() { web.Close(); srv.Close() })
	r.url = web.URL
	r.observe(workflow.MissionStarting)
	r.observe(workflow.MissionStarted)
	if out := r.must("get_mission_context", `{}`); json.Unmarshal(out, &r.ctx) != nil || r.ctx.Proofs == nil {
		t.Fatalf("%s", out)
	}
	return r
}

const owner = "mission-1"

func (r *real) observe(ev workflow.MissionEvent) {
	r.t.Helper()
	err := r.store.Commit(r.t.Context(), store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
		return r.keeper.Observe(tx, owner, ev, workflow.Mission{Agent: "a", Objective: "build", Plan: json.RawMessage(`["one","two"]`), Generation: 1})
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// do calls a tool and gives its output, and the error kind if it failed.
func (r *real) do(tool, args string) (json.RawMessage, string) {
	r.t.Helper()
	a := call(r.t, r.url, owner, tool, args)
	r.logMu.Lock()
	r.answers = append(r.answers, a.text)
	r.logMu.Unlock()
	out, isError := structured(r.t, a)
	if isError == out.Success || (out.Error == nil) != out.Success {
		r.t.Errorf("%s: success %v, error %v, isError %v", tool, out.Success, out.Error, isError)
	}
	kind := ""
	if out.Error != nil {
		kind, _, _ = strings.Cut(*out.Error, ":")
	}
	return out.Output, kind
}

func (r *real) must(tool, args string) json.RawMessage {
	r.t.Helper()
	out, kind := r.do(tool, args)
	if kind != "" {
		r.t.Fatalf("%s: %s: %s", tool, kind, out)
	}
	return out
}

// control is what came of a composite call.
func (r *real) control(out json.RawMessage) kernel.Control {
	r.t.Helper()
	var o struct {
		Control *kernel.Control `json:"control"`
	}
	if err := json.Unmarshal(out, &o); err != nil || o.Control == nil {
		r.t.Fatalf("no control in %s", out)
	}
	return *o.Control
}

func (r *real) revision() int64 {
	r.t.Helper()
	var g workflow.GoalView
	if err := json.Unmarshal(r.must("get_goal", `{"goal_id":"`+r.ctx.GoalID+`"}`), &g); err != nil {
		r.t.Fatal(err)
	}
	return g.Summary.Revision
}

func (r *real) progress(revision int64, key, more string) string {
	return fmt.Sprintf(`"before":{"goal_progress":{"goal_id":%q,"expected_revision":%d,"summary":"SENTINEL-summary","idempotency_key":%q%s}}`, r.ctx.GoalID, revision, key, more)
}

// command is run_command with the given phases.
func (r *real) command(phases string) string {
	wc := ""
	if phases != "" {
		wc = `,"_wc":{"control":{` + phases + `}}`
	}
	return `{"project":"` + r.ctx.Project + `","executable":"make","args":["test"]` + wc + `}`
}

// Acceptance B, C, F, and R28, R29, R36, R41: progress beside a command.
func TestProgressBesideACommand(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	first := r.control(r.must("run_command", r.command(r.progress(1, "k1", `,"completed_step_ids":["step-1"],"current_step_id":"step-2"`))))
	if !first.Before.Success || first.Before.Revision != 2 || first.Main.State != workflow.Succeeded || first.Main.StateChanged != nil {
		t.Errorf("%+v %+v", first.Before, first.Main)
	}
	again := r.control(r.must("run_command", r.command(r.progress(1, "k1", `,"completed_step_ids":["step-1"],"current_step_id":"step-2"`))))
	if !again.Before.Replayed || *again.Before.StateChanged || r.commands.Load() != 2 || r.revision() != 2 {
		t.Errorf("%+v, %d commands, revision %d", again.Before, r.commands.Load(), r.revision())
	}
	for name, c := range map[string]struct{ phases, kind string }{
		"a stale revision": {r.progress(1, "k2", ""), "goal_revision_changed"},
		"an unknown goal":  {strings.Replace(r.progress(2, "k3", ""), r.ctx.GoalID, "wc_goal_abcdefghijklmnop", 1), "goal_not_found"},
		"an unknown step":  {r.progress(2, "k4", `,"completed_step_ids":["none"]`), "invalid_goal_checkpoint"},
		"a key used again": {r.progress(2, "k1", ""), "goal_idempotency_conflict"},
	} {
		out, kind := r.do("run_command", r.command(c.phases))
		got := r.control(out)
		if kind != "control_before_failed" || got.Before.ErrorKind != c.kind || got.Main.State != workflow.NeverStarted {
			t.Errorf("%s: %s %+v", name, kind, got.Before)
		}
	}
	if r.commands.Load() != 2 || r.revision() != 2 {
		t.Errorf("%d commands, revision %d", r.commands.Load(), r.revision())
	}
	r.exit.Store(1)
	out, kind := r.do("run_command", r.command(r.progress(2, "k5", "")))
	if kind != "command_failed" || r.control(out).Main.State != workflow.Failed || r.revision() != 3 {
		t.Errorf("%s %s", kind, out)
	}
	r.deny.Store(true)
	out, kind = r.do("run_command", r.command(r.progress(3, "k6", "")))
	if kind != "permission_denied" || r.control(out).Main.State != workflow.NeverStarted || r.commands.Load() != 3 {
		t.Errorf("%s %s", kind, out)
	}
}

// Acceptance K: a todo is completed by a call that succeeds, and by no other.
func TestATodoBesideACommand(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	post := func() (id string) {
		var p workflow.PostResult
		_ = json.Unmarshal(r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"todo","message":"do it"}`), &p)
		return p.Message.MessageID
	}
	fence := func(id string) string {
		var a workflow.Assignment
		_ = json.Unmarshal(r.must("get_session_assignment", `{"session_id":"`+r.ctx.SessionID+`","message_id":"`+id+`"}`), &a)
		return a.Fence
	}
	after := func(id, fence, key string) string {
		return fmt.Sprintf(`"after_success":{"todo_completion":{"session_id":%q,"message_id":%q,"answer":"SENTINEL-answer","completion_key":%q,"expected_assignment_fence":%q}}`, r.ctx.SessionID, id, key, fence)
	}
	id := post()
	old := fence(id)
	r.exit.Store(1)
	out, _ := r.do("run_command", r.command(after(id, old, "c1")))
	if got := r.control(out).After; got.ErrorKind != "main_failed" || got.State != workflow.NeverStarted {
		t.Errorf("after a command that failed: %+v", got)
	}
	r.exit.Store(0)
	r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"guidance","message":"more","reply_to":"`+id+`"}`)
	out, kind := r.do("run_command", r.command(after(id, old, "c1")))
	if got := r.control(out).After; kind != "" || got.ErrorKind != "assignment_stale" || got.Success || strings.Contains(string(out), "wsa2_") {
		t.Errorf("after guidance: %q %s", kind, out)
	}
	fresh := fence(id)
	if got := r.control(r.must("run_command", r.command(after(id, fresh, "c1")))).After; !got.Success || got.Replayed {
		t.Errorf("with a fresh fence: %+v", got)
	}
	if got := r.control(r.must("run_command", r.command(after(id, fresh, "c1")))).After; !got.Success || !got.Replayed {
		t.Errorf("again: %+v", got)
	}
	// R41: alone, the same command says that it was done.
	var c workflow.CompleteResult
	_ = json.Unmarshal(r.must("complete_session_message", fmt.Sprintf(`{"session_id":%q,"message_id":%q,"answer":"SENTINEL-answer","completion_key":"c1","expected_assignment_fence":%q}`, r.ctx.SessionID, id, fresh)), &c)
	if !c.Replayed {
		t.Error("alone it is no replay")
	}
	for _, a := range r.answers[1:] {
		if strings.Contains(a, "SENTINEL-answer") && strings.Contains(a, `"control"`) {
			t.Errorf("an answer is in a composite answer: %s", a)
		}
	}
}

// Acceptance I and J: a wake and a heartbeat beside a command.
func TestAWakeAndAHeartbeatBesideACommand(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	beat := func(fence string) string {
		return fmt.Sprintf(`"before":{"attempt_heartbeat":{"task_id":%q,"attempt_id":%q,"assignee_agent_id":%q,"attempt_fence":%q,"attempt_controller_generation":%d}}`,
			r.ctx.TaskID, r.ctx.AttemptID, r.ctx.AgentID, fence, r.ctx.AttemptGeneration)
	}
	if got := r.control(r.must("run_command", r.command(beat(r.ctx.Proofs.AttemptFence)))).Before; !got.Success || got.Replayed || got.Revision != 0 {
		t.Errorf("%+v", got)
	}
	wrong := "wc_agent_task_fence_abcdefghijklmnopqrstuA"
	out, _ := r.do("run_command", r.command(beat(wrong)))
	if got := r.control(out); got.Before.Success || got.Main.State != workflow.NeverStarted || r.commands.Load() != 1 {
		t.Errorf("%+v", got.Before)
	}
	r.observe(workflow.MissionReconnected)
	var c workflow.MissionContext
	if err := json.Unmarshal(r.must("get_mission_context", `{}`), &c); err != nil || c.Wake == nil || c.Proofs == nil || c.Proofs.ConsumeToken == "" {
		t.Fatalf("%+v %v", c, err)
	}
	consume := func(token string, generation int64) string {
		return fmt.Sprintf(`"before":{"wake_consume":{"agent_id":%q,"endpoint_id":%q,"expected_controller_generation":%d,"wake_id":%q,"consume_token":%q}}`,
			c.AgentID, c.EndpointID, generation, c.Wake.WakeID, token)
	}
	for name, phases := range map[string]string{
		"another generation": consume(c.Proofs.ConsumeToken, c.Generation+1), "another token": consume("wc_wake_consume_abcdefghijklmnopqrstuA", c.Generation)} {
		out, kind := r.do("run_command", r.command(phases))
		if got := r.control(out); kind != "control_before_failed" || got.Main.State != workflow.NeverStarted {
			t.Errorf("%s: %s %+v", name, kind, got.Before)
		}
	}
	if got := r.control(r.must("run_command", r.command(consume(c.Proofs.ConsumeToken, c.Generation)))).Before; !got.Success || got.Replayed {
		t.Errorf("%+v", got)
	}
	if got := r.control(r.must("run_command", r.command(consume(c.Proofs.ConsumeToken, c.Generation)))).Before; !got.Success || !got.Replayed {
		t.Errorf("again: %+v", got)
	}
	for _, secret := range []string{c.Proofs.ConsumeToken, r.ctx.Proofs.AttemptFence} {
		for _, a := range r.answers {
			if strings.Contains(a, secret) && strings.Contains(a, `"control"`) {
				t.Error("a proof is in a composite answer")
			}
		}
		if strings.Contains(r.log.String(), secret) {
			t.Error("a proof is in the log")
		}
	}
}

// Acceptance M and R8: work is closed when nothing is open, and nothing closes
// by itself.
func TestFinishingClosesWhatItIsAskedTo(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	for range 20 {
		r.must("list_goals", `{}`)
		r.must("run_command", r.command(""))
	}
	var c workflow.MissionContext
	_ = json.Unmarshal(r.must("get_mission_context", `{}`), &c)
	if c.Revision != 1 || c.LeaseExpiresAt != r.ctx.LeaseExpiresAt {
		t.Errorf("ordinary calls moved revision %d or lease %d", c.Revision, c.LeaseExpiresAt)
	}
	var p workflow.PostResult
	_ = json.Unmarshal(r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"todo","message":"do it"}`), &p)
	r.must("checkpoint_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"completed_step_ids":["step-1","step-2"],"summary":"all","idempotency_key":"k"}`, r.ctx.GoalID))
	finish := func(after string) string {
		return `{"project":"` + r.ctx.Project + `","session_id":"` + r.ctx.SessionID + `","_wc":{"control":{"after_success":{` + after + `}}}}`
	}
	completion := fmt.Sprintf(`"goal_completion":{"goal_id":%q,"expected_revision":2,"idempotency_key":"done"}`, r.ctx.GoalID)
	if got := r.control(r.must("finish_coding_task", finish(completion))).After; got.ErrorKind != "closeout_blocking" {
		t.Errorf("with an open todo: %+v", got)
	}
	var a workflow.Assignment
	_ = json.Unmarshal(r.must("get_session_assignment", `{"session_id":"`+r.ctx.SessionID+`","message_id":"`+p.Message.MessageID+`"}`), &a)
	r.must("complete_session_message", fmt.Sprintf(`{"session_id":%q,"message_id":%q,"answer":"done","completion_key":"c","expected_assignment_fence":%q}`, r.ctx.SessionID, p.Message.MessageID, a.Fence))

	// Acceptance R: two at once, and exactly one ends the goal.
	var wg sync.WaitGroup
	got := make([]kernel.Control, 2)
	for i := range got {
		wg.Go(func() {
			got[i] = r.control(r.must("finish_coding_task", finish(strings.Replace(completion, `"done"`, fmt.Sprintf(`"done-%d"`, i), 1))))
		})
	}
	wg.Wait()
	won := 0
	for _, g := range got {
		if !g.Main.Success {
			t.Errorf("main %+v", g.Main)
		}
		switch {
		case g.After.Success && g.After.Revision == 3:
			won++
		case g.After.ErrorKind != "goal_revision_changed" && g.After.ErrorKind != "goal_terminal" || g.After.Revision != 3:
			t.Errorf("%+v", g.After)
		}
	}
	if won != 1 {
		t.Errorf("%d ended the goal", won)
	}
	if got := r.control(r.must("finish_coding_task", finish(`"session_close":{"session_id":"`+r.ctx.SessionID+`"}`))).After; !got.Success || got.Replayed {
		t.Errorf("%+v", got)
	}
	out, kind := r.do("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"note","message":"late"}`)
	if kind != "session_closed" {
		t.Errorf("%s %s", kind, out)
	}
}

// R30: what became of a call whose answer was lost, by its id and by its nonce.
func TestALostAnswerIsLookedUp(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	out := r.must("run_command", r.command(r.progress(1, "k", "")))
	var made struct {
		InvocationID string `json:"invocation_id"`
	}
	_ = json.Unmarshal(out, &made)
	check := func(args string) {
		t.Helper()
		var o workflow.CallOutcome
		if err := json.Unmarshal(r.must("get_invocation_outcome", args), &o); err != nil || o.Tool != "run_command" || o.Main.State != workflow.Succeeded || o.Before == nil || o.Before.State != workflow.Succeeded || o.InProgress {
			t.Errorf("%s: %+v %v", args, o, err)
		}
	}
	check(`{"invocation_id":"` + made.InvocationID + `"}`)
	body := strings.Replace(callBody(Revision, "run_command", r.command(r.progress(2, "k2", ""))), `"_meta":{`, `"_meta":{"host.airlock/invocation-nonce":"n1",`, 1)
	if a := post(t, r.url, owner, Revision, body, "Mcp-Method", "tools/call", "Mcp-Name", "run_command"); a.status != 200 {
		t.Fatal(a.text)
	}
	check(`{"nonce":"n1"}`)
	if _, kind := r.do("get_invocation_outcome", `{"nonce":"other"}`); kind != "invocation_not_found" {
		t.Error(kind)
	}
	a := call(t, r.url, "somebody-else", "get_invocation_outcome", `{"invocation_id":"`+made.InvocationID+`"}`)
	if other, _ := structured(t, a); other.Success {
		t.Error("another owner sees the call")
	}
}

// Acceptance Y, short: sixteen clients, and every mutation counted once.
func TestManyClientsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	const clients, each = 16, 6
	var accepted, mains atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				revision := int64(1)
				for try := 0; ; try++ {
					out, kind := r.do("run_command", r.command(r.progress(revision, fmt.Sprintf("k-%d-%d", c, i), "")))
					got := r.control(out)
					if got.Main.State == workflow.Succeeded {
						mains.Add(1)
					}
					if kind == "" {
						if !got.Before.Replayed {
							accepted.Add(1)
						}
						break
					}
					if got.Before.ErrorKind != "goal_revision_changed" || try > 5000 {
						t.Errorf("%s %+v", kind, got.Before)
						return
					}
					revision = got.Before.Revision
				}
			}
		})
	}
	wg.Wait()
	if accepted.Load() != clients*each || mains.Load() != clients*each || r.commands.Load() != clients*each || r.revision() != 1+clients*each {
		t.Errorf("accepted %d, mains %d, commands %d, revision %d", accepted.Load(), mains.Load(), r.commands.Load(), r.revision())
	}
}
