package journal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// reader is what another program reads of a decision: exactly six fields, each
// of them there.
type reader struct {
	Status             *string `json:"status"`
	Risk               *string `json:"risk"`
	Reason             *string `json:"reason"`
	DecisionPoint      *string `json:"decision_point"`
	EscalationRequired *bool   `json:"escalation_required"`
	CausalLink         *string `json:"causal_link"`
}

func exportOf(t *testing.T, payloads ...[2]string) string {
	t.Helper()
	head := journal.Genesis("t1", "0198c0de-0000-7000-8000-000000000001")
	var b bytes.Buffer
	w := journal.NewWriter(&b)
	for i, p := range payloads {
		var ev journal.Event
		ev, head = head.Next(fmt.Sprint("event-", i+1), time.Date(2026, 5, 3, 12, 0, i, 0, time.UTC), journal.Kind(p[0]), p[1])
		if err := w.Write(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const opened = `{"v":1,"journal_uuid":"0198c0de-0000-7000-8000-000000000001","agent":"agent-01"}`

func decided(id, decision string) [2]string {
	return [2]string{"decision", `{"v":1,"decision_id":"` + id + `","proposal_id":"p","epoch":3,"fingerprint":"f","policy_hash":"h","tool_name":"Bash","decision":` + decision + `}`}
}

func TestDecisionsAreReadByAStrictReaderOfSixFields(t *testing.T) {
	t.Parallel()
	text := exportOf(t, [2]string{"task_opened", opened},
		decided("d1", `{"status":"PAUSE","risk":null,"reason":"a <b> & c","decision_point":"tool_call","trigger_details":{"tool_name":"Bash","arguments":{}},"escalation_required":true,"causal_link":null,"findings":[{"id":"x"}]}`),
		[2]string{"approval", `{"v":1,"decision_id":"d1","action":"approve_once","actor":"op"}`},
		decided("d2", `{"status":"ALLOW","risk":"LOW","reason":"approved","decision_point":"tool_call","escalation_required":false,"causal_link":"d1","findings":[]}`))
	var out bytes.Buffer
	head, err := journal.WriteDecisions(&out, strings.NewReader(text), journal.Attribution{Source: "agentic-sidecar", SourceVersion: "1.2.3"})
	if err != nil || head.Sequence != 4 {
		t.Fatalf("%+v %v", head, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	var got []reader
	for i, line := range lines {
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			t.Fatal(err)
		}
		var names map[string]json.RawMessage
		if err := json.Unmarshal(all["decision"], &names); err != nil || len(names) != 6 {
			t.Errorf("the decision has the fields %v (%v)", names, err)
		}
		dec := json.NewDecoder(bytes.NewReader(all["decision"]))
		dec.DisallowUnknownFields()
		var r reader
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		got = append(got, r)
		var link map[string]any
		if err := json.Unmarshal(all["evidence_link"], &link); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"contract_version": "1.0", "agent_id": "agent-01", "source": "agentic-sidecar", "source_version": "1.2.3", "artifact_type": "decision",
			"artifact_ref": fmt.Sprint("urn:airlock:event:event-", 2*i+2), "observed_at": fmt.Sprintf("2026-05-03T12:00:0%dZ", 2*i+1),
		} {
			if link[name] != want {
				t.Errorf("line %d: %s of the evidence link is %v, want %v", i+1, name, link[name], want)
			}
		}
		// Neither a run that nobody named nor a version that makes readers stop.
		if len(link) != 7 {
			t.Errorf("the evidence link is %v", link)
		}
	}
	first, second := got[0], got[1]
	if *first.Status != "PAUSE" || first.Risk != nil || first.CausalLink != nil || !*first.EscalationRequired || *first.Reason != "a <b> & c" || *first.DecisionPoint != "tool_call" {
		t.Errorf("the first is %s", lines[0])
	}
	if *second.Status != "ALLOW" || second.Risk == nil || *second.Risk != "LOW" || *second.CausalLink != "d1" || *second.EscalationRequired {
		t.Errorf("the second is %s", lines[1])
	}
}

func TestDecisionsOfADamagedJournalAreAnError(t *testing.T) {
	t.Parallel()
	whole := exportOf(t, [2]string{"task_opened", opened},
		decided("d1", `{"status":"ALLOW","risk":null,"reason":"x","decision_point":"tool_call","escalation_required":false,"causal_link":null}`))
	for what, text := range map[string]string{
		"changed": strings.Replace(whole, "ALLOW", "BLOCK", 1),
		"torn":    whole[:len(whole)-5],
		"no risk": exportOf(t, [2]string{"task_opened", opened}, decided("d1", `{"status":"ALLOW","reason":"x","decision_point":"tool_call","escalation_required":false,"causal_link":null}`)),
	} {
		if _, err := journal.WriteDecisions(&bytes.Buffer{}, strings.NewReader(text), journal.Attribution{}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestTheRunAndTheDeploymentAreWhatTheCallerSays(t *testing.T) {
	t.Parallel()
	text := exportOf(t, [2]string{"task_opened", opened},
		decided("d1", `{"status":"ALLOW","risk":null,"reason":"x","decision_point":"tool_call","escalation_required":false,"causal_link":null}`))
	var out bytes.Buffer
	if _, err := journal.WriteDecisions(&out, strings.NewReader(text), journal.Attribution{AgentID: "deployment-7", RunID: "run-1"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"agent_id":"deployment-7"`) || !strings.Contains(out.String(), `"run_id":"run-1"`) {
		t.Error(out.String())
	}
}
