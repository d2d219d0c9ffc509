package journal_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// aLife is a task with every kind of event that has an occurrence: an approval,
// a call that ran, one that was withdrawn, a stop with its receipt.
func aLife(t *testing.T) string {
	t.Helper()
	return exportOf(t, [2]string{"task_opened", opened},
		[2]string{"proposed", `{"v":1,"proposal_id":"p1","tool_name":"Bash","tool_args":{}}`},
		[2]string{"decision", `{"v":1,"decision_id":"d1","proposal_id":"p1","epoch":1,"tool_name":"Bash","decision":{"status":"PAUSE","risk":null,"reason":"x","decision_point":"tool_call","escalation_required":true,"causal_link":null}}`},
		[2]string{"approval", `{"v":1,"decision_id":"d1","resolved_decision_id":"d2","action":"approve_once","actor":"op"}`},
		[2]string{"decision", `{"v":1,"decision_id":"d2","proposal_id":"p1","epoch":1,"tool_name":"Bash","decision":{"status":"ALLOW","risk":"LOW","reason":"approved","decision_point":"tool_call","escalation_required":false,"causal_link":"d1"}}`},
		[2]string{"executed", `{"v":1,"decision_id":"d2","invocation_id":"i1","proposal_id":"p1","tool_name":"Bash","epoch":1}`},
		[2]string{"cancel_requested", `{"v":1,"invocation_id":"i1","stop_id":"s1","accepted":true}`},
		[2]string{"failed", `{"v":1,"decision_id":"d2","invocation_id":"i1","outcome":"outcome_unknown"}`},
		[2]string{"proposed", `{"v":1,"proposal_id":"p2","tool_name":"Bash","tool_args":{}}`},
		[2]string{"decision", `{"v":1,"decision_id":"d3","proposal_id":"p2","epoch":1,"tool_name":"Bash","decision":{"status":"BLOCK","risk":null,"reason":"no","decision_point":"tool_call","escalation_required":false,"causal_link":null}}`},
		[2]string{"failed", `{"v":1,"decision_id":"d3","outcome":"definitely_not_started"}`},
		[2]string{"stop", `{"v":1,"epoch":2,"id":"s1","actor":"op","by":"operator","reason":"enough"}`},
		[2]string{"revocation_result", `{"v":1,"stop_id":"s1","issuer":"bank","result":"acknowledged"}`},
		[2]string{"stop_acknowledged", `{"v":1,"stop_id":"s1","receipt":{"access_revocation":"acknowledged"}}`})
}

func occurrences(t *testing.T, text string, by journal.Attribution) []journal.OccurrenceLine {
	t.Helper()
	var out bytes.Buffer
	if _, err := journal.WriteOccurrences(&out, strings.NewReader(text), by); err != nil {
		t.Fatal(err)
	}
	var list []journal.OccurrenceLine
	for line := range strings.Lines(out.String()) {
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		var o journal.OccurrenceLine
		if err := dec.Decode(&o); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, o)
	}
	return list
}

// M3: what the draft has a name for goes by it, where it means exactly that; all
// else goes by a name of our own, of three segments or more.
func TestOccurrencesGoByTheDraftsNamesWhereItHasThem(t *testing.T) {
	t.Parallel()
	canonical := []string{"aiops.tool.requested", "aiops.tool.authorized", "aiops.tool.completed", "aiops.tool.failed", "aiops.run.cancelled", "aiops.agent.waiting"}
	ours := regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z][a-z0-9_-]*){2,}$`)
	var got []string
	seen := map[string]bool{}
	for _, o := range occurrences(t, aLife(t), journal.Attribution{Source: "agentic-sidecar", SourceVersion: "1"}) {
		got = append(got, o.EventName+" "+o.ObjectType+" "+o.ObjectID)
		if !slices.Contains(canonical, o.EventName) && (!ours.MatchString(o.EventName) || strings.HasPrefix(o.EventName, "aiops")) {
			t.Errorf("%s is neither the draft's name nor one of ours", o.EventName)
		}
		if seen[o.EventID] || o.EventID == "" || o.OccurredAt.IsZero() || o.CorrelationID != "t1" || o.RunID != "" || o.Producer.Name != "agentic-sidecar" {
			t.Errorf("line %+v", o)
		}
		seen[o.EventID] = true
		for name := range o.Attributes {
			if !strings.HasPrefix(name, journal.Extension) && name != "duration_ms" {
				t.Errorf("%s has the attribute %s", o.EventName, name)
			}
		}
	}
	const x = journal.Extension
	want := []string{
		"aiops.tool.requested tool_invocation p1",
		x + "decision " + x + "decision d1", "aiops.agent.waiting agent agent-01",
		x + "approval " + x + "decision d1",
		x + "decision " + x + "decision d2", "aiops.tool.authorized tool_invocation p1",
		x + "tool.admitted tool_invocation p1",
		x + "tool.cancel_requested tool_invocation p1",
		"aiops.tool.failed tool_invocation p1",
		"aiops.tool.requested tool_invocation p2",
		x + "decision " + x + "decision d3", // blocked: not authorized, and no incident
		x + "tool.withdrawn tool_invocation p2",
		x + "stop " + x + "task t1", // whose run it cancels is not known
		x + "revocation.result " + x + "task t1",
		x + "stop.receipt " + x + "task t1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	named := occurrences(t, aLife(t), journal.Attribution{Source: "s", RunID: "run-7", AgentID: "deployment-7"})
	i := slices.IndexFunc(named, func(o journal.OccurrenceLine) bool { return o.EventName == "aiops.run.cancelled" })
	if i < 0 || named[i].ObjectID != "run-7" || named[i].RunID != "run-7" {
		t.Errorf("with a run: %+v", named)
	}
	if _, err := journal.WriteOccurrences(&bytes.Buffer{}, strings.NewReader(strings.Replace(aLife(t), "PAUSE", "ALLOW", 1)), journal.Attribution{}); err == nil {
		t.Error("a damaged journal is exported")
	}
}

// M1: neither the exports nor the documents claim to conform to anything.
func TestNoConformanceIsClaimed(t *testing.T) {
	t.Parallel()
	var decisions, all bytes.Buffer
	by := journal.Attribution{Source: "agentic-sidecar", SourceVersion: "1"}
	if _, err := journal.WriteDecisions(&decisions, strings.NewReader(aLife(t)), by); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.WriteOccurrences(&all, strings.NewReader(aLife(t)), by); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{decisions.String(), all.String()} {
		for _, word := range []string{"spec_version", "conform", "complian", "v0.4", "AIOS"} {
			if strings.Contains(text, word) {
				t.Errorf("%q in an export:\n%s", word, text)
			}
		}
	}
	docs, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(docs) < 10 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	claim := regexp.MustCompile(`(?i)(conforms? (to|with)|compliant|complies with|certified|implements) [^.|]*AIOS|AIOS[- ](conformant|compliant|compatible|certified)`)
	said := false
	for _, name := range append(docs, "../../../README.md", "../../../CHANGELOG.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := claim.Find(text); m != nil {
			t.Errorf("%s: %q", name, m)
		}
		said = said || strings.Contains(string(text), "AIOS") && strings.Contains(string(text), "no conformance is claimed")
	}
	if !said {
		t.Error("no document says that no conformance is claimed")
	}
}
