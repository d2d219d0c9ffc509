package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// A message that _wc.resolve has resolved stays so when the main call fails, and
// the answer says it.
func TestAResolveIsReportedWhenMainFails(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	for _, control := range []string{"", `,"control":{}`} {
		var p workflow.PostResult
		_ = json.Unmarshal(r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"question","message":"m"}`), &p)
		call := strings.TrimSuffix(r.command(""), "}") + `,"_wc":{"record":"` + r.ctx.SessionID + `","resolve":{"message_id":"` + p.Message.MessageID + `","resolution":"yes"}` + control + `}}`
		for _, again := range []bool{false, true} {
			r.deny.Store(true)
			out, kind := r.do("run_command", call)
			r.deny.Store(false)
			var o struct {
				StateChanged bool `json:"state_changed"`
				Attention    struct {
					Resolve struct {
						MessageID    string `json:"message_id"`
						StateChanged bool   `json:"state_changed"`
						Replayed     bool   `json:"replayed"`
					} `json:"resolve"`
				} `json:"session_attention"`
			}
			_ = json.Unmarshal(out, &o)
			if got := o.Attention.Resolve; kind != "permission_denied" || o.StateChanged == again || got.MessageID != p.Message.MessageID || got.StateChanged == again || got.Replayed != again {
				t.Errorf("again %v: %s %s", again, kind, out)
			}
			if control != "" {
				if c := r.control(out); c.Main.StateChanged == nil || *c.Main.StateChanged {
					t.Errorf("main has changed nothing: %s", out)
				}
			}
		}
	}
}

func acceptN(t *testing.T) {
	r := newReal(t)
	post := func(kind string, more string) string {
		var p workflow.PostResult
		_ = json.Unmarshal(r.must("post_session_message", `{"session_id":"`+r.ctx.SessionID+`","kind":"`+kind+`","message":"m"`+more+`}`), &p)
		return p.Message.MessageID
	}
	with := func(more, phases string) string {
		return strings.TrimSuffix(r.command(""), "}") + `,"_wc":{"record":"` + r.ctx.SessionID + `"` + more + `,"control":{` + phases + `}}}`
	}
	question := post("question", "")
	resolve := `,"resolve":{"message_id":"` + question + `","resolution":"yes"}`
	r.never("resolve and before", with(resolve, r.progress(1, "k", "")), "multiple_before_mutations")
	if r.revision() != 1 || r.commands.Load() != 0 {
		t.Error("something ran")
	}
	id, fence := r.todo()
	if c := r.control(r.must("run_command", with(resolve, r.completion(id, fence, "c")))); !c.After.Success {
		t.Errorf("%+v", c.After)
	}
	notice := post("note", `,"requires_ack":true`)
	id, fence = r.todo()
	out := r.must("run_command", with(`,"ack":["`+notice+`"],"context":["goals","nothing"]`, r.progress(1, "k", "")+`,`+r.completion(id, fence, "c2")))
	c := r.control(out)
	var more struct {
		Attention struct {
			Ack workflow.AckResult `json:"ack"`
		} `json:"session_attention"`
		Context struct {
			Materials []struct{ Key, Status string } `json:"materials"`
		} `json:"context_projection"`
	}
	if err := json.Unmarshal(out, &more); err != nil || !c.Before.Success || !c.After.Success || more.Attention.Ack.Accepted != 1 ||
		len(more.Context.Materials) != 2 || more.Context.Materials[0].Status != "available" || more.Context.Materials[1].Status != "unsupported" {
		t.Errorf("%v %s", err, out)
	}
}

func acceptO(t *testing.T) {
	r := newReal(t)
	id, fence := r.todo()
	args := r.command(r.progress(1, "k", "") + `,` + r.completion(id, fence, "c"))
	r.token = owner + "|runtime:execute,communication:manage"
	c := r.never("without the scope of after", args, "control_insufficient_scope")
	r.token = owner
	if c.Before.State != workflow.NeverStarted || c.Before.ErrorKind != "request_rejected" || c.After.ErrorKind != "main_not_started" || r.revision() != 1 {
		t.Errorf("%+v %+v, revision %d", c.Before, c.After, r.revision())
	}
	r.refuses("a malformed after", "run_command", strings.Replace(args, `"completion_key"`, `"completion"`, 1))
	if r.revision() != 1 {
		t.Error("a good before was committed beside a malformed after")
	}
}

func acceptP(t *testing.T) {
	r := newReal(t)
	through := func(tool, args, wc string) string {
		if wc != "" {
			wc = `,"_wc":{"control":{` + wc + `}}`
		}
		return `{"tool":"` + tool + `","arguments":` + args + wc + `}`
	}
	nested := r.command(r.progress(1, "k", ""))
	r.refuses("nested", "call_runtime_tool", through("run_command", nested, ""))
	r.refuses("both", "call_runtime_tool", through("run_command", nested, r.progress(1, "k", "")))
	r.refuses("itself", "call_runtime_tool", through("call_runtime_tool", `{}`, ""))
	if r.revision() != 1 {
		t.Error("something was committed")
	}
	out, kind := r.do("call_runtime_tool", through("nothing", `{}`, r.progress(1, "k", "")))
	if c := r.control(out); kind != "unknown_tool" || c.Main.State != workflow.NeverStarted || r.revision() != 1 {
		t.Errorf("%s %s", kind, out)
	}
	if c := r.control(r.must("call_runtime_tool", through("run_command", r.command(""), r.progress(1, "k", "")))); !c.Before.Success || r.commands.Load() != 1 {
		t.Errorf("%+v", c.Before)
	}
	// The gate of closing kinds is the target's.
	out, kind = r.do("call_runtime_tool", through("run_command", r.command(""), `"after_success":{`+r.goalDone(2, "d")+`}`))
	if c := r.control(out); kind != "control_requires_finish_coding_task" || c.Main.State != workflow.NeverStarted {
		t.Errorf("%s %s", kind, out)
	}
	r.must("checkpoint_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":2,"completed_step_ids":["step-1","step-2"],"summary":"all","idempotency_key":"k2"}`, r.ctx.GoalID))
	finish := `{"project":"` + r.ctx.Project + `","session_id":"` + r.ctx.SessionID + `"}`
	if c := r.control(r.must("call_runtime_tool", through("finish_coding_task", finish, `"after_success":{`+r.goalDone(3, "d")+`}`))); !c.After.Success {
		t.Errorf("%+v", c.After)
	}
}

func acceptQ(t *testing.T) {
	r := newReal(t)
	good := r.command(r.progress(1, "k", ""))
	v, err := strict.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(v strict.Value)
	walk = func(v strict.Value) {
		for _, m := range v.Members {
			n++
			// The member once more, directly before itself.
			twice := `"` + m.Name + `":` + string(m.Value.Raw)
			r.refuses("twice: "+m.Name, "run_command", strings.Replace(good, twice, twice+`,`+twice, 1))
			walk(m.Value)
		}
	}
	walk(v)
	if n < 11 || r.revision() != 1 {
		t.Errorf("%d members, revision %d", n, r.revision())
	}
}

func acceptR(t *testing.T) {
	r := newReal(t)
	r.must("checkpoint_goal", fmt.Sprintf(`{"goal_id":%q,"expected_revision":1,"completed_step_ids":["step-1","step-2"],"summary":"all","idempotency_key":"k"}`, r.ctx.GoalID))
	const clients = 4
	var wg sync.WaitGroup
	got := make([]kernel.Control, clients)
	for i := range got {
		wg.Go(func() {
			got[i] = r.control(r.must("finish_coding_task", r.finish(r.goalDone(2, fmt.Sprint("done-", i)))))
		})
	}
	wg.Wait()
	won := 0
	for _, g := range got {
		switch {
		case !g.Main.Success:
			t.Errorf("main %+v", g.Main)
		case g.After.Success && g.After.Revision == 3:
			won++
		case g.After.ErrorKind != "goal_revision_changed" && g.After.ErrorKind != "goal_terminal" || g.After.Revision != 3:
			t.Errorf("%+v", g.After)
		}
	}
	if won != 1 {
		t.Errorf("%d ended the goal", won)
	}
}

func acceptT(t *testing.T) {
	for name, phases := range map[string]int{"before": 1, "after": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r *real
			begun, at := 0, -1 // the writer alone reads and writes them, and this test before and after
			hook := func(p store.Point) error {
				if at < 0 {
					return nil
				}
				if p == store.PointBegun {
					begun++
				}
				if p == store.PointCommitted && begun == at {
					return errors.New("the disk is gone")
				}
				return nil
			}
			r = newRealWith(t, hook, 0)
			id, fence := r.todo()
			if err := r.store.Commit(t.Context(), store.Batch{Work: func(workflow.Tx, *store.Batch) error { at = phases; return nil }}); err != nil {
				t.Fatal(err)
			}
			begun = 0
			out, kind := r.do("run_command", r.command(r.progress(1, "k", "")+`,`+r.completion(id, fence, "c")))
			c := r.control(out)
			if name == "before" {
				if kind != "control_before_failed" || c.Before.State != workflow.Unknown || c.Before.StateChanged != nil || c.Main.State != workflow.NeverStarted || r.commands.Load() != 0 {
					t.Errorf("%s %s", kind, out)
				}
				return
			}
			if kind != "" || !c.Main.Success || !c.Before.Success || c.After.State != workflow.Unknown || c.After.StateChanged != nil || c.After.ErrorKind != "completion_persistence_uncertain" {
				t.Errorf("%s %s", kind, out)
			}
		})
	}
}

func acceptU(t *testing.T) {
	r := newReal(t)
	id, fence := r.todo()
	ctx, cancel := context.WithCancel(t.Context())
	r.doing(func(call context.Context, _ string, _ engine.CellCommand) error {
		cancel() // the client goes while the command runs
		<-call.Done()
		return nil // and the command ends well all the same
	})
	body := callBody(Revision, "run_command", r.command(r.completion(id, fence, "c")))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + owner,
		"MCP-Protocol-Version": Revision, "Mcp-Method": "tools/call", "Mcp-Name": "run_command"} {
		req.Header.Set(k, v)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Fatal("the request was answered")
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var a workflow.Assignment
		_ = json.Unmarshal(r.must("get_session_assignment", `{"session_id":"`+r.ctx.SessionID+`","message_id":"`+id+`"}`), &a)
		if a.Todo.Status == "resolved" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the phase after was cut off: %+v", a.Todo)
		}
	}
}

func acceptV(t *testing.T) {
	r := newReal(t)
	r.observe(workflow.MissionReconnected)
	var c workflow.MissionContext
	_ = json.Unmarshal(r.must("get_mission_context", `{}`), &c)
	id, fence := r.todo()
	r.ansMu.Lock()
	r.answers = nil
	r.ansMu.Unlock()
	wake := fmt.Sprintf(`"before":{"wake_consume":{"agent_id":%q,"endpoint_id":%q,"expected_controller_generation":%d,"wake_id":%q,"consume_token":%q}}`,
		c.AgentID, c.EndpointID, c.Generation, c.Wake.WakeID, c.Proofs.ConsumeToken)
	beat := fmt.Sprintf(`"before":{"attempt_heartbeat":{"task_id":%q,"attempt_id":%q,"assignee_agent_id":%q,"attempt_fence":%q,"attempt_controller_generation":%d,"active_turn_wake_id":%q,"active_turn_consume_token":%q}}`,
		c.TaskID, c.AttemptID, c.AgentID, c.Proofs.AttemptFence, c.AttemptGeneration, c.Wake.WakeID, c.Proofs.ConsumeToken)
	done := r.completion(id, fence, "SENTINEL-key")
	for _, phases := range []string{
		wake, wake, beat, r.progress(1, "SENTINEL-key", ""), r.progress(1, "SENTINEL-key", ""), r.progress(1, "SENTINEL-other", ""), done, done,
		strings.Replace(wake, c.Proofs.ConsumeToken, "wc_wake_consume_SENTINELSENTINELSENTIA", 1), // and what is wrong
		strings.Replace(beat, c.Proofs.AttemptFence, "wc_agent_task_fence_SENTINELSENTINELSENTIA", 1),
		r.completion(id, "wsa2_SENTINELSENTINELSENTIA", "SENTINEL-2"),
	} {
		_, _ = r.do("run_command", r.command(phases))
	}
	for _, bad := range []string{`"SENTINEL":1`, `"before":{"SENTINEL":{}}`, `"before":{"goal_progress":{"SENTINEL":1}}`, `"after_success":{"todo_completion":{"answer":["SENTINEL"]}}`} {
		a := call(t, r.url, owner, "run_command", r.command(bad))
		r.answers = append(r.answers, a.text)
	}
	r.must("finish_coding_task", r.finish(`"session_close":{"session_id":"`+r.ctx.SessionID+`"}`))
	proofs := []string{c.Proofs.ConsumeToken, c.Proofs.AttemptFence, fence}
	secrets := append(slices.Clone(proofs), "SENTINEL")
	r.mu.Lock()
	metrics, _ := json.Marshal(r.seen)
	r.mu.Unlock()
	for _, s := range secrets {
		for _, a := range r.answers {
			if strings.Contains(a, s) {
				t.Errorf("%q is in a response: %s", s, a)
			}
		}
		if strings.Contains(r.log.String(), s) || strings.Contains(string(metrics), s) {
			t.Errorf("%q is in the log or in a metric", s)
		}
	}
	// The store has a goal's summary and a todo's answer, which are its business;
	// proofs and keys it has as digests only.
	err := filepath.WalkDir(filepath.Join(r.dir, "data"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, s := range append(proofs, "SENTINEL-key", "SENTINEL-2", "SENTINEL-reason") {
			if strings.Contains(string(text), s) {
				t.Errorf("%q is in %s", s, filepath.Base(path))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func acceptW(t *testing.T) {
	// The REST routes themselves are tried in package api (TestRESTBodiesHaveNoEnvelope).
	// A route that forwards a body's envelope by mistake gets nowhere.
	r := newReal(t)
	id, fence := r.todo()
	for _, wc := range []string{`{}`, `{"control":{}}`, `{"control":{` + r.progress(1, "k", "") + `}}`, `{"control":{` + r.completion(id, fence, "c") + `}}`,
		`{"record":"` + r.ctx.SessionID + `"}`, `{"record":"` + r.ctx.SessionID + `","ack":["` + id + `"]}`, `{"context":["goals"]}`} {
		for _, tool := range []string{"run_command", "list_goals", "finish_coding_task"} {
			args := map[string]string{"run_command": r.command(""), "list_goals": `{}`, "finish_coding_task": `{"project":"` + r.ctx.Project + `","session_id":"` + r.ctx.SessionID + `"}`}[tool]
			a := r.callTo(tool, args, wc, kernel.Caller{Owner: owner, Scopes: []string{kernel.AllScopes}, Transport: kernel.REST})
			if !strings.HasPrefix(a.Error, "control_sidecar_not_admitted") {
				t.Errorf("%s %s: %q", tool, wc, a.Error)
			}
		}
	}
	if r.commands.Load() != 0 || r.revision() != 1 || r.fence(id) != fence {
		t.Error("something ran")
	}
}

func acceptX(t *testing.T) { theSDKsClient(t) }
func acceptY(t *testing.T) { manyClients(t) }
