package governance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/host/internal/governance"
)

var at = time.Date(2026, 5, 9, 7, 13, 22, 0, time.UTC)

// world runs a task the way the engine does: decide, then apply.
type world struct {
	t     governance.Task
	g     governance.Guard
	n     int
	facts []governance.Fact
}

func newWorld() *world { return &world{g: governance.Guard{Epoch: 1}} }

func (w *world) do(facts []governance.Fact, err error) error {
	if err != nil {
		return err
	}
	for _, f := range facts {
		if !w.t.Apply(f, at) {
			return fmt.Errorf("%T is no fact of a task", f)
		}
		w.facts = append(w.facts, f)
		if c, ok := f.(governance.IntentChanged); ok {
			w.g.Epoch = c.Epoch
		}
	}
	return nil
}

func (w *world) id(kind string) string { w.n++; return fmt.Sprint(kind, w.n) }

// propose makes a proposal with a verdict; it gives the decision's id.
func (w *world) propose(proposal, args string, o governance.Outcome) (string, error) {
	d := governance.Decided{DecisionID: w.id("d"), ProposalID: proposal, Epoch: w.g.Epoch, Tool: "refund", ArgsDigest: args,
		Fingerprint: fmt.Sprint(proposal, args, w.g.Epoch), Decision: governance.Record{Status: o, Reason: "because"}}
	p := governance.Proposed{ProposalID: proposal, Tool: "refund", ArgsDigest: args, Args: json.RawMessage(`{}`)}
	return d.DecisionID, w.do(w.t.Propose(w.g, p, d.Keep(json.RawMessage(`{}`))))
}

func (w *world) admit(decision, fingerprint string) (string, error) {
	x := governance.Executed{InvocationID: w.id("i")}
	return x.InvocationID, w.do(w.t.Admit(w.g, decision, fingerprint, x))
}

func (w *world) fingerprint(decision string) string {
	d, ok := w.t.Decision(decision)
	if !ok {
		return ""
	}
	return d.Fingerprint
}

func (w *world) approve(decision, action string, o governance.Outcome) (string, error) {
	old, ok := w.t.Decision(decision)
	if !ok {
		old = &governance.Decision{}
	}
	by := governance.Decided{DecisionID: w.id("d"), ProposalID: old.ProposalID, Epoch: w.g.Epoch, Tool: old.Tool, ArgsDigest: old.ArgsDigest,
		Fingerprint: old.Fingerprint, Decision: governance.Record{Status: o}}
	return by.DecisionID, w.do(w.t.Answer(w.g, governance.Approved{DecisionID: decision, Action: action, Actor: "op"}, by))
}

func code(err error) string {
	var r *governance.Refused
	if errors.As(err, &r) {
		return r.Code
	}
	return fmt.Sprint(err)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestADecisionPermitsOneDispatchOfWhatWasJudged(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Allow))
	if _, err := w.admit(d, "another call"); code(err) != governance.CodeFingerprint {
		t.Errorf("changed call: %v", err)
	}
	must[string](t)(w.admit(d, w.fingerprint(d)))
	if _, err := w.admit(d, w.fingerprint(d)); code(err) != governance.CodeConsumed {
		t.Errorf("second dispatch: %v", err)
	}
	if w.t.Counters.Executed != 1 || w.t.Counters.Completed != 0 {
		t.Errorf("counters %+v", w.t.Counters)
	}
}

// TestJ3EvaluationIsNotExecution: judging alone never counts as running.
func TestJ3EvaluationIsNotExecution(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 10 {
		must[string](t)(w.propose(fmt.Sprint("p", i), "a", governance.Allow))
	}
	if c := w.t.Counters; c.Executed != 0 || c.Completed != 0 || c.Proposed != 10 || c.Allowed != 10 {
		t.Errorf("counters %+v", c)
	}
}

func TestWhatVoidsAVerdict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*world)
		want   string
	}{
		"a newer epoch":       {func(w *world) { w.g.Epoch++ }, governance.CodeStale},
		"a pause":             {func(w *world) { w.g.Paused = true }, governance.CodePaused},
		"a stop":              {func(w *world) { w.g.Stopped = true }, governance.CodeStopped},
		"another intent":      {func(w *world) { _ = w.do(w.t.SetIntent(w.g, envelope(), "op")) }, governance.CodeStale},
		"a stop, then epoch":  {func(w *world) { w.g.Stopped = true; w.g.Epoch++ }, governance.CodeStopped},
		"nothing, but BLOCK":  {func(w *world) { _, _ = w.propose("q", "a", governance.Block) }, ""},
		"a pause over resume": {func(w *world) { w.g.Epoch++; w.g.Paused = false }, governance.CodeStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			d := must[string](t)(w.propose("p", "a", governance.Allow))
			tt.change(w)
			_, err := w.admit(d, w.fingerprint(d))
			if tt.want == "" && err != nil || tt.want != "" && code(err) != tt.want {
				t.Errorf("admit: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOnlyAllowAndWarnRunInGovernMode(t *testing.T) {
	t.Parallel()
	for _, o := range []governance.Outcome{governance.Allow, governance.Warn, governance.Challenge, governance.Replan, governance.Pause, governance.Escalate, governance.Block} {
		for _, observe := range []bool{false, true} {
			w := newWorld()
			w.g.Observe = observe
			d := must[string](t)(w.propose("p", "a", o))
			_, err := w.admit(d, w.fingerprint(d))
			if runs := o.Runs() || observe; runs != (err == nil) || !runs && code(err) != governance.CodeNotAllowed {
				t.Errorf("%s, observe %v: %v", o, observe, err)
			}
		}
	}
}

func TestAnApprovalIsTakenOnceAndPointsBack(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Pause))
	if _, err := w.admit(d, w.fingerprint(d)); code(err) != governance.CodeNotAllowed {
		t.Errorf("dispatch before the answer: %v", err)
	}
	by := must[string](t)(w.approve(d, governance.ApproveOnce, governance.Allow))
	if got, ok := w.t.Decision(by); !ok || got.CausalLink != d {
		t.Errorf("the resolving decision points at %+v, want %s", got, d)
	}
	if _, err := w.approve(d, governance.ApproveOnce, governance.Allow); code(err) != governance.CodeResolved {
		t.Errorf("second answer: %v", err)
	}
	if r, ok := w.t.ResolvedBy(d); !ok || r.By != by {
		t.Errorf("resolved by %+v, want %s", r, by)
	}
	must[string](t)(w.admit(by, w.fingerprint(by)))
	if _, err := w.approve("never", governance.Reject, governance.Block); !errors.Is(err, governance.ErrUnknown) {
		t.Errorf("unknown decision: %v", err)
	}
}

func TestAnApprovalOfAnOlderEpochIsStale(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Pause))
	w.g.Epoch++
	if _, err := w.approve(d, governance.ApproveOnce, governance.Allow); code(err) != governance.CodeStale {
		t.Errorf("before it is judged again: %v", err)
	}
	again := must[string](t)(w.propose("p", "a", governance.Pause))
	if again == d {
		t.Fatal("the same decision id")
	}
	if _, err := w.approve(d, governance.ApproveOnce, governance.Allow); code(err) != governance.CodeStale {
		t.Errorf("the old id: %v", err)
	}
	must[string](t)(w.approve(again, governance.ApproveOnce, governance.Allow))
	if w.t.Counters.Proposed != 1 {
		t.Errorf("judged again counts as proposed %d times", w.t.Counters.Proposed)
	}
}

func TestAKnownProposal(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Allow))
	if _, err := w.propose("p", "other", governance.Allow); code(err) != governance.CodeChanged {
		t.Errorf("changed contents: %v", err)
	}
	if _, err := w.propose("p", "a", governance.Block); err != nil { // the same again: nothing new
		t.Fatal(err)
	}
	if got, _ := w.t.Latest("p"); got.ID != d || w.t.Counters.Proposed != 1 {
		t.Errorf("latest %s, counters %+v", got.ID, w.t.Counters)
	}
}

func TestSettling(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Allow))
	i := must[string](t)(w.admit(d, w.fingerprint(d)))
	w.g.Stopped = true // a stop does not keep the truth out of the record
	if err := w.do(w.t.Settle(governance.Settled{InvocationID: i, Outcome: governance.Succeeded})); err != nil {
		t.Fatal(err)
	}
	if err := w.do(w.t.Settle(governance.Settled{InvocationID: i, Outcome: governance.Succeeded})); code(err) != governance.CodeSettled {
		t.Errorf("twice: %v", err)
	}
	if err := w.do(w.t.Settle(governance.Settled{InvocationID: "none", Outcome: governance.Failed})); !errors.Is(err, governance.ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	if err := w.do(w.t.Settle(governance.Settled{InvocationID: i, Outcome: "maybe"})); err == nil {
		t.Error("an unknown outcome was taken")
	}
	if w.t.Counters.Completed != 1 || len(w.t.Running) != 0 {
		t.Errorf("counters %+v, running %v", w.t.Counters, w.t.Running)
	}
}

// TestX5AnUnknownOutcomeIsAnOperatorsToSay: a call that was reported as not known
// blocks nothing and takes an operator's word, once; one that the host itself
// made for an agent stays open until then.
func TestX5AnUnknownOutcomeIsAnOperatorsToSay(t *testing.T) {
	t.Parallel()
	for _, boundary := range []string{"protocol", governance.BoundaryMCP} {
		w := newWorld()
		d := must[string](t)(w.propose("p", "a", governance.Allow))
		w.t.Decisions[0].Boundary = boundary
		i := must[string](t)(w.admit(d, w.fingerprint(d)))
		if err := w.do(w.t.Settle(governance.Settled{InvocationID: i, Outcome: governance.Unknown})); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{governance.BoundaryMCP: 1}[boundary]
		if len(w.t.Unresolved) != want || len(w.t.Running) != 0 {
			t.Errorf("%s: unresolved %v, running %v", boundary, w.t.Unresolved, w.t.Running)
		}
		if err := w.do(w.t.ResolveInvocation(i, governance.Succeeded, "seen", "op")); err != nil {
			t.Fatalf("%s: %v", boundary, err)
		}
		if c := w.t.Counters; c.Completed != 1 || c.Failed != 0 || len(w.t.Unresolved) != 0 {
			t.Errorf("%s: counters %+v, unresolved %v", boundary, c, w.t.Unresolved)
		}
		if _, err := w.t.ResolveInvocation(i, governance.Failed, "no", "op"); err == nil {
			t.Errorf("%s: resolved twice", boundary)
		}
	}
}

// TestX2X3RestartWaitsForEvidence: what a crash left open, and access that is
// not revoked, block a restart.
func TestX2X3RestartWaitsForEvidence(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Allow))
	i := must[string](t)(w.admit(d, w.fingerprint(d)))
	if code(w.t.MayRestart()) != governance.CodeRunning {
		t.Errorf("running: %v", w.t.MayRestart())
	}
	w.t.LeaveOpen()
	if code(w.t.MayRestart()) != governance.CodeUnresolved {
		t.Errorf("left open: %v", w.t.MayRestart())
	}
	if err := w.do(w.t.ResolveInvocation(i, governance.Succeeded, "seen in the ledger", "op")); err != nil {
		t.Fatal(err)
	}
	_ = w.do([]governance.Fact{governance.RevocationStarted{StopID: "s", Issuers: []string{"x", "y"}}}, nil)
	_ = w.do([]governance.Fact{governance.RevocationResult{StopID: "s", Issuer: "x", Result: "acknowledged", Attempt: 1}}, nil)
	if code(w.t.MayRestart()) != governance.CodeRevocation {
		t.Errorf("in flight: %v", w.t.MayRestart())
	}
	_ = w.do([]governance.Fact{governance.RevocationResult{StopID: "s", Issuer: "y", Result: "failed", Attempt: 1}}, nil)
	if w.t.Revocation.State != "partial" || code(w.t.MayRestart()) != governance.CodeRevocation {
		t.Errorf("partial: %s, %v", w.t.Revocation.State, w.t.MayRestart())
	}
	_ = w.do([]governance.Fact{governance.RevocationResult{StopID: "s", Issuer: "y", Result: "acknowledged", Attempt: 2}}, nil)
	if err := w.t.MayRestart(); err != nil {
		t.Errorf("done: %v", err)
	}
}

func envelope() *governance.Envelope {
	return &governance.Envelope{ID: "e", Goal: "g", RequestedBy: governance.Requester{Type: "human", ID: "h"}, Constraints: map[string]json.RawMessage{}}
}

func TestAnEnvelopeMustBeWhole(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*governance.Envelope){
		"id": func(e *governance.Envelope) { e.ID = "" }, "goal": func(e *governance.Envelope) { e.Goal = "" },
		"type": func(e *governance.Envelope) { e.RequestedBy.Type = "robot" }, "by": func(e *governance.Envelope) { e.RequestedBy.ID = "" },
		"constraints": func(e *governance.Envelope) { e.Constraints = nil },
	} {
		e := envelope()
		spoil(e)
		if err := e.Valid(); !errors.Is(err, governance.ErrEnvelope) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := envelope().Valid(); err != nil {
		t.Error(err)
	}
}

// TestSeverity holds all 49 pairs (rulings 16).
func TestSeverity(t *testing.T) {
	t.Parallel()
	order := []governance.Outcome{governance.Allow, governance.Warn, governance.Challenge, governance.Replan, governance.Pause, governance.Escalate, governance.Block}
	for i, a := range order {
		for j, b := range order {
			if got := governance.Worse(a, b); got != order[max(i, j)] {
				t.Errorf("worse of %s and %s = %s", a, b, got)
			}
		}
	}
	if governance.Outcome("MAYBE").Severity() != governance.Block.Severity() {
		t.Error("an unknown outcome is less severe than BLOCK")
	}
}

func TestTheFingerprintCoversEverything(t *testing.T) {
	t.Parallel()
	base := governance.Judged{TaskID: "t", Epoch: 1, ProposalID: "p", Tool: "x", Provenance: "v", Args: []byte("{}"), Intent: "i", Rules: "r", Budget: "b", Mode: "m", CellID: "c"}
	for name, change := range map[string]func(*governance.Judged){
		"task": func(j *governance.Judged) { j.TaskID = "u" }, "epoch": func(j *governance.Judged) { j.Epoch = 2 },
		"proposal": func(j *governance.Judged) { j.ProposalID = "q" }, "tool": func(j *governance.Judged) { j.Tool = "y" },
		"provenance": func(j *governance.Judged) { j.Provenance = "w" }, "args": func(j *governance.Judged) { j.Args = []byte(`{"n":1.0}`) },
		"intent": func(j *governance.Judged) { j.Intent = "j" }, "rules": func(j *governance.Judged) { j.Rules = "s" },
		"budget": func(j *governance.Judged) { j.Budget = "c" }, "mode": func(j *governance.Judged) { j.Mode = "n" },
		"cell": func(j *governance.Judged) { j.CellID = "d" }, "moved": func(j *governance.Judged) { j.Tool, j.Provenance = "xv", "" },
	} {
		j := base
		change(&j)
		if j.Fingerprint() == base.Fingerprint() {
			t.Errorf("%s is not covered", name)
		}
	}
}

func TestTheFingerprintLooksAtContents(t *testing.T) {
	t.Parallel()
	print := func(args string) string { return governance.Judged{Args: []byte(args)}.Fingerprint() }
	if print(`{"a":1,"b":{"d":2,"c":3}}`) != print(`{ "b": {"c":3,"d":2}, "a":1 }`) {
		t.Error("the order of members counts")
	}
	for _, pair := range [][2]string{{`{"a":1}`, `{"a":1.0}`}, {`{"a":1}`, `{"a":"1"}`}, {`{"a":[1,2]}`, `{"a":[2,1]}`},
		{`{"a":100000000000000000001}`, `{"a":100000000000000000002}`}, {"{\"a\":\"e\u0301\"}", "{\"a\":\"\u00e9\"}"}} {
		if print(pair[0]) == print(pair[1]) {
			t.Errorf("%s and %s are the same", pair[0], pair[1])
		}
	}
}

// TestRandomCalls: whatever the order of commands, no dispatch is without an
// allowing decision of the same epoch, none after a stop or in a pause, no
// decision is used twice, and the facts alone rebuild the task.
func TestRandomCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var decisions, invocations []string
		outcome := rapid.SampledFrom([]governance.Outcome{governance.Allow, governance.Warn, governance.Pause, governance.Block, governance.Replan})
		used := map[string]bool{}
		pick := func(list []string) string {
			if len(list) == 0 {
				return "none"
			}
			return rapid.SampledFrom(list).Draw(t, "id")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "command") {
			case 0, 1:
				p := fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "proposal"))
				if d, err := w.propose(p, "a", outcome.Draw(t, "outcome")); err == nil {
					decisions = append(decisions, d)
				}
			case 2, 3:
				d := pick(decisions)
				before, known := w.t.Decision(d)
				var was governance.Decision
				if known {
					was = *before
				}
				i, err := w.admit(d, w.fingerprint(d))
				if err != nil {
					break
				}
				invocations = append(invocations, i)
				if used[d] || !was.Outcome.Runs() || was.Epoch != w.g.Epoch || w.g.Stopped || w.g.Paused {
					t.Fatalf("dispatch of %+v under %+v", was, w.g)
				}
				used[d] = true
			case 4:
				if by, err := w.approve(pick(decisions), governance.ApproveOnce, outcome.Draw(t, "outcome")); err == nil {
					decisions = append(decisions, by)
				}
			case 5:
				_ = w.do(w.t.Settle(governance.Settled{InvocationID: pick(invocations), Outcome: governance.Succeeded}))
			case 6:
				w.g.Epoch++
				w.g.Paused = rapid.Bool().Draw(t, "paused")
			case 7:
				_ = w.do(w.t.SetIntent(w.g, envelope(), "op"))
			case 8:
				if rapid.IntRange(0, 9).Draw(t, "stop") == 0 {
					w.g.Stopped = true
					w.t.Void()
				}
			}
		}
		c := w.t.Counters
		if c.Executed != len(invocations) || c.Completed+c.Failed+len(w.t.Running) != c.Executed {
			t.Fatalf("counters %+v with %d running of %d", c, len(w.t.Running), len(invocations))
		}
	})
}

// TestFactsSurviveTheirJSON: a fact is an event's payload and reads back as the
// same.
func TestFactsSurviveTheirJSON(t *testing.T) {
	t.Parallel()
	w := newWorld()
	d := must[string](t)(w.propose("p", "a", governance.Pause))
	by := must[string](t)(w.approve(d, governance.ApproveOnce, governance.Allow))
	i := must[string](t)(w.admit(by, w.fingerprint(by)))
	_ = w.do(w.t.Settle(governance.Settled{InvocationID: i, Outcome: governance.Failed, Error: "no"}))
	_ = w.do(w.t.SetIntent(w.g, envelope(), "op"))
	var again governance.Task
	for _, f := range w.facts {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		back, err := governance.Decode(f.Kind(), text)
		if err != nil || back == nil {
			t.Fatalf("%s: %v, %v", f.Kind(), back, err)
		}
		again.Apply(back, at)
	}
	for i := range w.t.Decisions { // arguments are kept beside the journal
		w.t.Decisions[i].Args = nil
	}
	want, _ := json.Marshal(w.t)
	got, _ := json.Marshal(again)
	if string(want) != string(got) {
		t.Errorf("rebuilt\n%s\nwant\n%s", got, want)
	}
}

// TestDecisionsOfOtherEpochsDoNotFillATask: what a pause has voided does not
// count against the limit of open decisions.
func TestDecisionsOfOtherEpochsDoNotFillATask(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var err error
	for i := 0; err == nil; i++ {
		if i > 10000 {
			t.Fatal("there is no limit")
		}
		_, err = w.propose(fmt.Sprint("p", i), "a", governance.Allow)
	}
	if code(err) != governance.CodeTooMany {
		t.Fatal(err)
	}
	w.g.Epoch++
	must[string](t)(w.propose("fresh", "a", governance.Allow))
}

// TestARevocationForgetsNamesThatAreNotAsked: an issuer that failed under a name
// that means another one now does not keep the task from restarting.
func TestARevocationForgetsNamesThatAreNotAsked(t *testing.T) {
	t.Parallel()
	w := newWorld()
	say := func(facts ...governance.Fact) { _ = w.do(facts, nil) }
	say(governance.Granted{Issuer: "pay", Access: &governance.Access{Kind: "session", Issuer: "pay", Ref: "s"}},
		governance.RevocationStarted{StopID: "1", Issuers: []string{"pay"}},
		governance.RevocationResult{StopID: "1", Issuer: "pay", Result: "failed", Attempt: 1})
	if w.t.MayRestart() == nil {
		t.Fatal("a failure does not block the restart")
	}
	say(governance.RevocationStarted{StopID: "2", Issuers: []string{"revoker.webhook.pay"}},
		governance.RevocationResult{StopID: "2", Issuer: "revoker.webhook.pay", Result: "acknowledged", Attempt: 1})
	if err := w.t.MayRestart(); err != nil || len(w.t.Access) != 0 {
		t.Errorf("%v, access %v", err, w.t.Access)
	}
}
