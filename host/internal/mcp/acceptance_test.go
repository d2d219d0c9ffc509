package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// The acceptance behaviours of seed 004 (control-sidecars, section 7), by their
// letters, each against the real domain over HTTP.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		run  func(*testing.T)
	}{
		{"A closed grammar, and parity of payload and canonical request", acceptA},
		{"B before is visible to main; replay; the tool alone", acceptB},
		{"C stale revision, unknown goal, unknown step, terminal goal: main is not run", acceptC},
		{"D scopes are independent; a restricted permission mode", acceptD},
		{"E no capability on the API and on the legacy transport", acceptE},
		{"F a failed after keeps main", acceptF},
		{"G closeout gates", acceptG},
		{"H the reserved context update", acceptH},
		{"I a wake", acceptI},
		{"J a heartbeat", acceptJ},
		{"K a todo", acceptK},
		{"L a started and an unknown main have no after", acceptL},
		{"M the real finish call, blocking and not", acceptM},
		{"N resolve, ack and context beside the phases", acceptN},
		{"O an after without its scope keeps before from being committed", acceptO},
		{"P the gateway", acceptP},
		{"Q duplicate members at each depth", acceptQ},
		{"R concurrent posts", acceptR},
		{"S kill -9 between the phases, and a restart", acceptS},
		{"T an injected commit error is outcome_unknown", acceptT},
		{"U a request that is cancelled after the dispatch", acceptU},
		{"V no secret in logs, store, responses and metrics", acceptV},
		{"W REST bodies with an envelope", acceptW},
		{"X the SDK's client, both revisions", acceptX},
		{"Y many calls lose and double nothing", acceptY},
	}
	for i, row := range rows {
		if row.name[0] != byte('A'+i) {
			t.Errorf("row %d is %s", i, row.name)
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(t)
		})
	}
	if len(rows) != 'Y'-'A'+1 {
		t.Errorf("%d rows", len(rows))
	}
}

// never is what every call that was refused says of main.
func (r *real) never(name, args, kind string) kernel.Control {
	r.t.Helper()
	out, got := r.do("run_command", args)
	c := r.control(out)
	if got != kind || c.Main.State != workflow.NeverStarted || c.Main.StateChanged == nil || *c.Main.StateChanged {
		r.t.Errorf("%s: %s, want %s: %s", name, got, kind, out)
	}
	return c
}

// refuses wants a JSON-RPC error before anything is run.
func (r *real) refuses(name, tool, args string) {
	r.t.Helper()
	a := call(r.t, r.url, r.token, tool, args)
	if a.code != -32602 && a.code != -32700 || a.status != http.StatusBadRequest || r.commands.Load() != 0 {
		r.t.Errorf("%s: %d %s, %d commands", name, a.status, a.text, r.commands.Load())
	}
}

// todo posts a todo and gives its id and its fence.
func (r *real) todo() (id, fence string) {
	r.t.Helper()
	var p workflow.PostResult
	_ = json.Unmarshal(r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"todo","message":"do it"}`), &p)
	return p.Message.MessageID, r.fence(p.Message.MessageID)
}

func (r *real) fence(id string) string {
	r.t.Helper()
	var a workflow.Assignment
	_ = json.Unmarshal(r.must("get_session_assignment", `{"session_id":"`+r.ctx.SessionID+`","message_id":"`+id+`"}`), &a)
	return a.Fence
}

func (r *real) answerOf(id, fence, key string) string {
	return fmt.Sprintf(`"session_id":%q,"message_id":%q,"answer":"SENTINEL-answer","completion_key":%q,"expected_assignment_fence":%q`, r.ctx.SessionID, id, key, fence)
}

// completion is the phase after that answers a todo.
func (r *real) completion(id, fence, key string) string {
	return `"after_success":{"todo_completion":{` + r.answerOf(id, fence, key) + `}}`
}

func (r *real) finish(after string) string {
	return `{"project":"` + r.ctx.Project + `","session_id":"` + r.ctx.SessionID + `","_wc":{"control":{"after_success":{` + after + `}}}}`
}

func (r *real) goalDone(revision int64, key string) string {
	return fmt.Sprintf(`"goal_completion":{"goal_id":%q,"expected_revision":%d,"idempotency_key":%q,"terminal_reason":"SENTINEL-reason"}`, r.ctx.GoalID, revision, key)
}

func acceptA(t *testing.T) {
	r := newReal(t)
	g := envelope.New()
	for _, k := range append(envelope.Before(), envelope.After(true)...) {
		canonical := r.kernel.Tool(k.Tool()).Shape
		if k == envelope.GoalCompletion {
			for _, n := range g.Shape(k).Names() {
				if !slices.Contains(canonical.Names(), n) || n == "lifecycle" {
					t.Errorf("goal_completion has %s", n)
				}
			}
			continue
		}
		if got, want := string(g.Shape(k).Schema(false)), string(canonical.Schema(false)); got != want {
			t.Errorf("%s: %s is not %s", k, got, want)
		}
	}
	good := r.progress(1, "k", "")
	for _, phases := range []string{`"before":null`, `"before":[]`, `"before":{}`, `"before":"x"`, `"after_success":null`, `"after_success":[]`, `"after":{}`, good + `,"more":{}`,
		`"before":{"goal_completion":{}}`, `"before":{"nothing":{}}`, `"after_success":{"goal_progress":{}}`, strings.Replace(good, `"summary"`, `"more":1,"summary"`, 1),
		strings.Replace(good, `:1,`, `:"1",`, 1), strings.Replace(good, `:1,`, `:1.0,`, 1), strings.Replace(good, `"SENTINEL-summary"`, `null`, 1),
		strings.Replace(good, `{"goal_progress":`, `{"wake_consume":{},"goal_progress":`, 1), strings.Replace(good, `"goal_progress":{`, `"goal_progress":[{`, 1) + `]`} {
		if json.Valid([]byte(r.command(phases))) {
			r.refuses(phases, "run_command", r.command(phases))
		}
	}
	if r.revision() != 1 {
		t.Error("something was committed")
	}
	if got := r.control(r.must("run_command", strings.TrimSuffix(r.command(""), "}")+`,"_wc":{"control":{}}}`)); got.Before != nil || got.After != nil || !got.Main.Success {
		t.Errorf("an empty control: %+v", got)
	}
}

func acceptB(t *testing.T) {
	r := newReal(t)
	var during int64
	r.doing(func(context.Context, string, engine.CellCommand) error {
		g, err := r.keeper.GetGoal(context.Background(), workflow.Caller{Owner: owner}, workflow.GetGoal{GoalID: r.ctx.GoalID})
		during = g.Summary.Revision
		return err
	})
	args := r.command(r.progress(1, "k", `,"completed_step_ids":["step-1"]`))
	if got := r.control(r.must("run_command", args)); got.Before.Revision != 2 || during != 2 || *got.Before.StateChanged != true {
		t.Errorf("%+v, main saw revision %d", got.Before, during)
	}
	if got := r.control(r.must("run_command", args)); !got.Before.Replayed || *got.Before.StateChanged || r.commands.Load() != 2 || r.revision() != 2 {
		t.Errorf("again: %+v", got.Before)
	}
	alone := fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"summary":"SENTINEL-summary","idempotency_key":"k","completed_step_ids":["step-1"]}`, r.ctx.GoalID)
	out := r.must("checkpoint_goal", alone)
	var g workflow.GoalResult
	if _ = json.Unmarshal(out, &g); !g.Replayed || strings.Contains(string(out), `"control"`) {
		t.Errorf("alone: %s", out)
	}
	_ = json.Unmarshal(r.must("checkpoint_goal", strings.NewReplacer(`:1,`, `:2,`, `"k"`, `"k2"`).Replace(alone)), &g)
	if g.Replayed || g.Goal.Summary.Revision != 3 {
		t.Errorf("alone, new: %+v", g)
	}
}

func acceptC(t *testing.T) {
	r := newReal(t)
	ended := r.must("create_goal", `{"title":"t","objective":"o","idempotency_key":"g"}`)
	var g workflow.GoalResult
	_ = json.Unmarshal(ended, &g)
	r.must("update_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"lifecycle":"cancelled","idempotency_key":"c"}`, g.Goal.Summary.GoalID))
	for kind, phases := range map[string]string{
		"goal_revision_changed":   r.progress(7, "k1", ""),
		"goal_not_found":          strings.Replace(r.progress(1, "k2", ""), r.ctx.GoalID, "wc_goal_abcdefghijklmnop", 1),
		"invalid_goal_checkpoint": r.progress(1, "k3", `,"completed_step_ids":["none"]`),
		"goal_terminal":           strings.Replace(r.progress(2, "k4", ""), r.ctx.GoalID, g.Goal.Summary.GoalID, 1),
	} {
		c := r.never(kind, r.command(phases), "control_before_failed")
		if c.Before.ErrorKind != kind || c.Before.State != workflow.Failed || kind == "goal_revision_changed" && c.Before.Revision != 1 {
			t.Errorf("%s: %+v", kind, c.Before)
		}
	}
	if r.commands.Load() != 0 || r.revision() != 1 {
		t.Errorf("%d commands, revision %d", r.commands.Load(), r.revision())
	}
}

func acceptD(t *testing.T) {
	r := newReal(t)
	args := r.command(r.progress(1, "k", ""))
	r.token = owner + "|runtime:execute"
	r.never("without the sidecar's scope", args, "control_insufficient_scope")
	r.token = owner + "|communication:manage"
	r.never("without main's scope", args, "insufficient_scope")
	r.token = owner
	if r.commands.Load() != 0 || r.revision() != 1 {
		t.Errorf("%d commands, revision %d", r.commands.Load(), r.revision())
	}
	r.deny.Store(true) // a committed before stays
	if c := r.never("the gate denies main", args, "permission_denied"); !c.Before.Success || r.commands.Load() != 0 || r.revision() != 2 {
		t.Errorf("%+v", c.Before)
	}
	r.token = owner + "|runtime:execute,communication:manage"
	r.deny.Store(false)
	r.must("run_command", r.command(r.progress(2, "k2", "")))
}

// callTo makes a call as the adapter would, by another way.
func (r *real) callTo(tool, args, wc string, by kernel.Caller) kernel.Answer {
	r.t.Helper()
	c := &kernel.Call{Caller: by, Tool: r.kernel.Tool(tool), Args: parsed(r.t, args)}
	var err error
	if c.Envelope, err = envelope.New().Parse(parsed(r.t, wc), envelope.All); err != nil {
		r.t.Fatal(err)
	}
	a, err := r.kernel.Run(r.t.Context(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func acceptE(t *testing.T) {
	r := newReal(t)
	wc := `{"control":{` + r.progress(1, "k", "") + `}}`
	for name, by := range map[string]kernel.Caller{
		"the API":               {Transport: kernel.REST, Caps: kernel.Capabilities{ControlSidecars: true}},
		"a legacy MCP revision": {Transport: kernel.MCPLegacy, Caps: kernel.Capabilities{ControlSidecars: true}},
		"inside of the host":    {Caps: kernel.Capabilities{ControlSidecars: true}},
		"no capability":         {Transport: kernel.MCP},
	} {
		by.Owner, by.Scopes = owner, []string{kernel.AllScopes}
		if a := r.callTo("run_command", r.command(""), wc, by); !strings.HasPrefix(a.Error, "control_sidecar_not_admitted") {
			t.Errorf("%s: %s", name, a.Error)
		}
	}
	a := post(t, r.url, owner, LegacyRevision, callBody(LegacyRevision, "run_command", r.command(r.progress(1, "k", ""))))
	if a.code != -32602 || r.commands.Load() != 0 || r.revision() != 1 {
		t.Errorf("%s", a.text)
	}
}

func acceptF(t *testing.T) {
	r := newReal(t)
	id, fence := r.todo()
	r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"guidance","message":"more","reply_to":"`+id+`"}`)
	c := r.control(r.must("run_command", r.command(r.completion(id, fence, "c"))))
	if !c.Main.Success || c.After.Success || c.After.State != workflow.Failed || c.After.ErrorKind != "assignment_stale" || r.commands.Load() != 1 {
		t.Errorf("%+v %+v, %d commands", c.Main, c.After, r.commands.Load())
	}
}

func acceptG(t *testing.T) {
	r := newReal(t)
	r.must("checkpoint_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"completed_step_ids":["step-1","step-2"],"summary":"all","idempotency_key":"k"}`, r.ctx.GoalID))
	for mode, why := range map[string]string{"failed": "main_failed", "blocking": "closeout_blocking", "missing": "closeout_blocking", "text": "closeout_blocking"} {
		for _, after := range []string{r.goalDone(2, "done"), `"session_close":{"session_id":"` + r.ctx.SessionID + `"}`} {
			out, _ := r.do("odd_closeout", `{"mode":"`+mode+`","_wc":{"control":{"after_success":{`+after+`}}}}`)
			if c := r.control(out); c.After.ErrorKind != why || c.After.State != workflow.NeverStarted {
				t.Errorf("%s: %+v", mode, c.After)
			}
		}
	}
	c := r.control(r.must("odd_closeout", `{"mode":"open","_wc":{"control":{"after_success":{`+r.goalDone(2, "done")+`}}}}`))
	if !c.After.Success || c.After.Revision != 3 {
		t.Errorf("%+v", c.After)
	}
	r.never("on another tool", r.command(`"after_success":{`+r.goalDone(3, "x")+`}`), "control_requires_finish_coding_task")
}

func acceptH(t *testing.T) {
	r := newReal(t)
	in := `"project":"` + r.ctx.Project + `","session_id":"` + r.ctx.SessionID + `","execution_context":{"default_shell":"sh"}`
	c := r.never("reserved", r.command(`"before":{"session_context_update":{`+in+`}}`), "session_context_replay_contract_required")
	if c.Before.ErrorKind != "session_context_replay_contract_required" || r.commands.Load() != 0 {
		t.Errorf("%+v", c.Before)
	}
	var got workflow.SessionContextResult
	if _ = json.Unmarshal(r.must("update_session_context", `{`+in+`}`), &got); !got.Changed {
		t.Errorf("alone: %+v", got)
	}
}

func acceptI(t *testing.T) {
	r := newReal(t)
	r.observe(workflow.MissionReconnected)
	var c workflow.MissionContext
	if err := json.Unmarshal(r.must("get_mission_context", `{}`), &c); err != nil || c.Wake == nil || c.Proofs == nil {
		t.Fatalf("%+v %v", c, err)
	}
	fields := func(generation int64, token string) string {
		return fmt.Sprintf(`"agent_id":%q,"endpoint_id":%q,"expected_controller_generation":%d,"wake_id":%q,"consume_token":%q`, c.AgentID, c.EndpointID, generation, c.Wake.WakeID, token)
	}
	consume := func(generation int64, token string) string {
		return r.command(`"before":{"wake_consume":{` + fields(generation, token) + `}}`)
	}
	token := c.Proofs.ConsumeToken
	if got := r.never("another generation", consume(c.Generation+1, token), "control_before_failed"); got.Before.ErrorKind != "endpoint_generation_stale" {
		t.Errorf("%+v", got.Before)
	}
	if got := r.never("another token", consume(c.Generation, "wc_wake_consume_abcdefghijklmnopqrstuA"), "control_before_failed"); got.Before.ErrorKind != "wake_consume_token_mismatch" {
		t.Errorf("%+v", got.Before)
	}
	out := r.must("run_command", consume(c.Generation, token))
	if got := r.control(out).Before; !got.Success || got.Replayed || strings.Contains(string(out), token) {
		t.Errorf("%s", out)
	}
	if got := r.control(r.must("run_command", consume(c.Generation, token))).Before; !got.Replayed {
		t.Errorf("again: %+v", got)
	}
	alone := r.must("consume_agent_wake", `{`+fields(c.Generation, token)+`}`)
	var w workflow.WakeResult
	if _ = json.Unmarshal(alone, &w); !w.AlreadyConsumed || strings.Contains(string(alone), token) {
		t.Errorf("alone: %s", alone)
	}
}

func acceptJ(t *testing.T) {
	r := newReal(t)
	lease := func() int64 {
		var c workflow.MissionContext
		_ = json.Unmarshal(r.must("get_mission_context", `{}`), &c)
		return c.LeaseExpiresAt
	}
	first := lease()
	r.ahead.Add(1000)
	id, open := r.todo()
	for range 5 {
		r.must("run_command", r.command(""))
		r.must("list_goals", `{}`)
	}
	if lease() != first || r.revision() != 1 || r.fence(id) != open {
		t.Error("ordinary calls moved the lease, the goal or the todo")
	}
	beat := func(fence string, generation int64) string {
		return r.command(fmt.Sprintf(`"before":{"attempt_heartbeat":{"task_id":%q,"attempt_id":%q,"assignee_agent_id":%q,"attempt_fence":%q,"attempt_controller_generation":%d}}`,
			r.ctx.TaskID, r.ctx.AttemptID, r.ctx.AgentID, fence, generation))
	}
	fence, gen := r.ctx.Proofs.AttemptFence, r.ctx.AttemptGeneration
	for name, args := range map[string]string{"another fence": beat("wc_agent_task_fence_abcdefghijklmnopqrstuA", gen), "another generation": beat(fence, gen+1)} {
		if c := r.never(name, args, "control_before_failed"); c.Before.ErrorKind != "agent_task_attempt_stale" || lease() != first {
			t.Errorf("%s: %+v", name, c.Before)
		}
	}
	out := r.must("run_command", beat(fence, gen))
	if c := r.control(out); !c.Before.Success || c.Before.Replayed || strings.Contains(string(out), fence) {
		t.Errorf("%s", out)
	}
	// The lease holds to its last millisecond, and not in the one that it ends at.
	// It is the clock that is moved: the lease's end minus the present.
	r.ahead.Add(first - r.now().UnixMilli() + 1)
	if c := r.never("after the lease", beat(fence, gen), "control_before_failed"); c.Before.ErrorKind != "agent_task_attempt_stale" {
		t.Errorf("%+v", c.Before)
	}
}

func acceptK(t *testing.T) {
	r := newReal(t)
	id, old := r.todo()
	r.exit.Store(1)
	out, _ := r.do("run_command", r.command(r.completion(id, old, "c")))
	if c := r.control(out); c.After.ErrorKind != "main_failed" || c.Main.State != workflow.Failed {
		t.Errorf("after a command that failed: %+v", c.After)
	}
	r.exit.Store(0)
	r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"guidance","message":"more","reply_to":"`+id+`"}`)
	if c := r.control(r.must("run_command", r.command(r.completion(id, old, "c")))); c.After.ErrorKind != "assignment_stale" {
		t.Errorf("after guidance: %+v", c.After)
	}
	fresh := r.fence(id)
	out = r.must("run_command", r.command(r.completion(id, fresh, "c")))
	if c := r.control(out); !c.After.Success || c.After.Replayed || strings.Contains(string(out), "SENTINEL-answer") {
		t.Errorf("%s", out)
	}
	if c := r.control(r.must("run_command", r.command(r.completion(id, fresh, "c")))); !c.After.Replayed {
		t.Errorf("again: %+v", c.After)
	}
	var alone workflow.CompleteResult
	if _ = json.Unmarshal(r.must("complete_session_message", `{`+r.answerOf(id, fresh, "c")+`}`), &alone); !alone.Replayed {
		t.Error("alone it is no replay")
	}
}

func acceptL(t *testing.T) {
	r := newRealWith(t, nil, 20*time.Millisecond)
	id, fence := r.todo()
	goOn := make(chan struct{})
	r.doing(func(context.Context, string, engine.CellCommand) error { <-goOn; return nil })
	out := r.must("run_command", r.command(r.completion(id, fence, "c")))
	c := r.control(out)
	if c.Main.State != workflow.Started || c.Main.StateChanged != nil || c.After.ErrorKind != "main_not_completed" || c.After.State != workflow.NeverStarted {
		t.Errorf("%+v %+v", c.Main, c.After)
	}
	// The job's end is found by the call's id; the todo stays what it was.
	var made struct {
		InvocationID string `json:"invocation_id"`
	}
	_ = json.Unmarshal(out, &made)
	outcome := func() (o workflow.CallOutcome) {
		_ = json.Unmarshal(r.must("get_invocation_outcome", `{"invocation_id":"`+made.InvocationID+`"}`), &o)
		return o
	}
	if o := outcome(); o.Main.State != workflow.Started || o.InProgress {
		t.Errorf("while the job runs: %+v", o)
	}
	var f workflow.FinishResult
	finish := func() []string {
		_ = json.Unmarshal(r.must("finish_coding_task", `{"project":"`+r.ctx.Project+`","session_id":"`+r.ctx.SessionID+`"}`), &f)
		return f.TaskOutcome.BlockingReasons
	}
	if got := finish(); !slices.Contains(got, "jobs_running") {
		t.Errorf("blocking %q", got)
	}
	close(goOn)
	for end := time.Now().Add(30 * time.Second); outcome().Main.State != workflow.Succeeded; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the job's end is not recorded: %+v", outcome())
		}
	}
	if got := finish(); !slices.Equal(got, []string{"open_todos"}) {
		t.Errorf("blocking %q", got)
	}
	r.doing(func(context.Context, string, engine.CellCommand) error { return errors.New("cut off") })
	out, kind := r.do("run_command", r.command(r.completion(id, fence, "c")))
	if c := r.control(out); kind != "command_outcome_unknown" || c.Main.State != workflow.Unknown || c.Main.StateChanged != nil || c.After.ErrorKind != "main_outcome_unknown" {
		t.Errorf("%s %+v %+v", kind, c.Main, c.After)
	}
	if r.fence(id) != fence {
		t.Error("the todo has changed")
	}
}

func acceptM(t *testing.T) {
	r := newReal(t)
	id, fence := r.todo()
	r.must("checkpoint_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"completed_step_ids":["step-1","step-2"],"summary":"all","idempotency_key":"k"}`, r.ctx.GoalID))
	if c := r.control(r.must("finish_coding_task", r.finish(r.goalDone(2, "done")))); c.After.ErrorKind != "closeout_blocking" || !c.Main.Success {
		t.Errorf("with an open todo: %+v", c.After)
	}
	r.must("complete_session_message", `{`+r.answerOf(id, fence, "c")+`}`)
	if c := r.control(r.must("finish_coding_task", r.finish(r.goalDone(2, "done")))); !c.After.Success || c.After.Revision != 3 {
		t.Errorf("%+v", c.After)
	}
	if c := r.control(r.must("finish_coding_task", r.finish(`"session_close":{"session_id":"`+r.ctx.SessionID+`"}`))); !c.After.Success {
		t.Errorf("%+v", c.After)
	}
}
