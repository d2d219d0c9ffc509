package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
)

const commandArgs = `{"project":"ws_1","executable":"make","args":["test > \u003e \u00e9"]}`

// withControl is the call as a runtime proposes it: with its envelope, in an
// order and a spelling of its own.
const withControl = `{"_wc":{"control":{"before":{"goal_progress":{"idempotency_key":"SENTINEL"}}}},"args":["test \u003e > é"],"executable":"make","project":"ws_1"}`

// A call over MCP that its runtime has proposed under a tool use id is that call
// (rulings 37): it gets no second proposal, it is made once, and only as it was
// proposed. What it has under _wc is part of neither fingerprint nor journal.
func TestACallOverMCPIsTheOneThatTheRuntimeProposed(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	task(t, g, "m", "")
	propose := func(id, tool, args string) string {
		t.Helper()
		d, err := g.Real.Propose(ctx, "m", engine.Proposal{ProposalID: id, Tool: tool, Args: json.RawMessage(args)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d.DecisionID
	}
	admit := func(id, args string) (engine.AdmittedCall, error) {
		return g.Real.AdmitCall(ctx, "m", engine.CellCall{Tool: "run_command", Args: json.RawMessage(args), ToolUseID: id})
	}
	denied := func(name string, err error, why string) {
		t.Helper()
		var d *engine.Denied
		if !errors.As(err, &d) || !strings.Contains(d.Reason, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	decision := propose("toolu_1", "mcp__airlock__run_command", withControl)
	_, err := admit("toolu_1", commandArgs)
	denied("before it was dispatched", err, "is not running")
	id, err := g.Real.Dispatch(ctx, "m", decision, "mcp__airlock__run_command", json.RawMessage(commandArgs))
	if err != nil {
		t.Fatal(err)
	}
	_, err = admit("toolu_1", strings.Replace(commandArgs, `"make"`, `"cmake"`, 1))
	denied("with other arguments", err, "not the one that was proposed")
	got, err := admit("toolu_1", commandArgs)
	if err != nil || !got.Joined || got.InvocationID != id {
		t.Fatalf("%+v %v", got, err)
	}
	_, err = admit("toolu_1", commandArgs)
	denied("a second time", err, "made already")
	// The runtime settles what it has proposed; the endpoint's word is none.
	g.Real.EndCall(ctx, "m", got, governance.Failed, 0)
	if err := g.Real.Complete(ctx, "m", governance.Settled{InvocationID: id, Outcome: governance.Succeeded}); err != nil {
		t.Fatal(err)
	}
	_, err = admit("toolu_1", commandArgs)
	denied("after its end", err, "is not running")

	other := propose("toolu_2", "mcp__airlock__ask_operator", `{"question":"may I?"}`)
	if _, err := g.Real.Dispatch(ctx, "m", other, "mcp__airlock__ask_operator", json.RawMessage(`{"question":"may I?"}`)); err != nil {
		t.Fatal(err)
	}
	_, err = admit("toolu_2", commandArgs)
	denied("under the id of another tool", err, "not the one that was proposed")

	// An id that nobody has proposed, and none: a proposal of the endpoint's own.
	for _, id := range []string{"toolu_9", ""} {
		got, err := admit(id, commandArgs)
		if err != nil || got.Joined {
			t.Fatalf("%q: %+v %v", id, got, err)
		}
		g.Real.EndCall(ctx, "m", got, governance.Succeeded, 0)
	}
	if n := len(events(t, g, "m", journal.Proposed)); n != 4 {
		t.Errorf("%d proposals", n)
	}
	for _, kind := range []journal.Kind{journal.Proposed, journal.Decision, journal.Executed} {
		for _, ev := range events(t, g, "m", kind) {
			if text := ev.Payload; strings.Contains(text, "_wc") || strings.Contains(text, "SENTINEL") {
				t.Errorf("an envelope is in the journal: %s", text)
			}
		}
	}
}

// The envelope of a tool that is not the endpoint's is an argument like others.
// The proofs that the endpoint's own tools are called with are journalled as
// digests, also through the gateway.
func TestProofsAreNotJournalled(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	task(t, g, "m", "")
	for tool, args := range map[string]string{
		"mcp__airlock__consume_agent_wake":           `{"wake_id":"w","consume_token":"PROOF-1"}`,
		"mcp__airlock__heartbeat_agent_task_attempt": `{"attempt_fence":"PROOF-2","active_turn_consume_token":"PROOF-3"}`,
		"mcp__airlock__complete_session_message":     `{"expected_assignment_fence":"PROOF-4","answer":"a"}`,
		"mcp__airlock__call_runtime_tool":            `{"tool":"consume_agent_wake","arguments":{"consume_token":"PROOF-5"},"_wc":{"control":"PROOF-6"}}`,
	} {
		if _, err := g.Real.Propose(ctx, "m", engine.Proposal{Tool: tool, Args: json.RawMessage(args)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Real.Propose(ctx, "m", engine.Proposal{Tool: "mcp__other__x", Args: json.RawMessage(`{"_wc":"DATA","consume_token":"DATA"}`)}, 0); err != nil {
		t.Fatal(err)
	}
	data := 0
	for _, kind := range []journal.Kind{journal.Proposed, journal.Decision} {
		for _, ev := range events(t, g, "m", kind) {
			text := ev.Payload
			if strings.Contains(text, "PROOF") {
				t.Errorf("a proof is in the journal: %s", text)
			}
			data += strings.Count(text, "DATA")
		}
	}
	if data != 4 {
		t.Errorf("another server's arguments are there %d times", data)
	}
}
