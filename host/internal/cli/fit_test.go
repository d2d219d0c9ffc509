package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestAListOfMissionsFitsTheTerminal: long ids lose from their middle, and
// nothing is lost where there is no terminal or --no-trunc.
func TestAListOfMissionsFitsTheTerminal(t *testing.T) {
	t.Parallel()
	id := "mission-" + strings.Repeat("abcdefgh", 20) + "-the-end"
	raw, err := json.Marshal(map[string]any{"mission_id": id, "state": "running", "agent": "agent-01",
		"created_at": time.Now().Format(time.RFC3339Nano), "objective": strings.Repeat("say it ", 30)})
	if err != nil {
		t.Fatal(err)
	}
	list := &missions{Missions: []json.RawMessage{raw}}
	for _, columns := range []int{60, 80, 132} {
		var out bytes.Buffer
		if err := showMissions(&out, list, columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%d columns: a line has %d: %q", columns, n, line)
			}
		}
		shown := strings.Fields(strings.Split(out.String(), "\n")[1])[0]
		head, tail, cut := strings.Cut(shown, "…")
		if !cut || len(head) < 5 || len(tail) < 5 || !strings.HasPrefix(id, head) || !strings.HasSuffix(id, tail) {
			t.Errorf("%d columns: the id is shown as %q", columns, shown)
		}
	}
	var out bytes.Buffer
	if err := showMissions(&out, list, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), id) || strings.Contains(out.String(), "…") {
		t.Errorf("without a limit: %q", out.String())
	}
}

func TestWhatWentWrongIsShownWhole(t *testing.T) {
	t.Parallel()
	text := "start of the cell: " + strings.Repeat("a long story ", 40) + "which ends here"
	payload, err := json.Marshal(map[string]any{"state": "failed", "error": text, "summary": text})
	if err != nil {
		t.Fatal(err)
	}
	said := (&event{Kind: "ended", Payload: payload}).says()
	if !strings.Contains(said, fmt.Sprintf("error=%q", text)) {
		t.Errorf("the event says %q", said)
	}
	if strings.Count(said, "which ends here") != 1 {
		t.Errorf("a summary is not shortened: %q", said)
	}
	var out bytes.Buffer
	showMission(&out, &mission{MissionID: "m", State: "failed", StateReason: "dispatch_error", Error: text})
	if !strings.Contains(out.String(), text) {
		t.Errorf("show says %q", out.String())
	}
	m := &mission{MissionID: "m", State: "failed", StateReason: "dispatch_error", Error: text}
	if err := m.outcome(); err == nil || !strings.Contains(err.Error(), "dispatch_error: "+text) {
		t.Errorf("the outcome is %v", err)
	}
}

func TestStatusNamesOnlyLimitsThatWereAskedFor(t *testing.T) {
	t.Parallel()
	status := func(notes []string, ready string) string {
		t.Helper()
		agents, err := json.Marshal([]map[string]any{{"name": "a", "healthy": true, "notes": notes}})
		if err != nil {
			t.Fatal(err)
		}
		st := &hostStatus{Ready: json.RawMessage(ready), Agents: agents, Plugins: json.RawMessage("[]"), Questions: json.RawMessage("[]"),
			Orchestrator: json.RawMessage("{}"), Missions: &missions{}}
		var out bytes.Buffer
		if err := st.show(&out, "here", 0); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := status([]string{"limit cpu: not-enforced:no limit was set", "limit disk: not-enforced:volumes are directories of the machine, without a quota",
		"limit memory: not-enforced:no limit was set", "network open: all of it"}, `{"ready":true}`)
	if strings.Contains(got, "no limit was set") || !strings.Contains(got, "limit disk: not-enforced") || !strings.Contains(got, "network open") {
		t.Errorf("status says %q", got)
	}
	got = status(nil, `{"ready":false,"run_dir":"run_dir /r was deleted","trouble":["the host key was replaced","the store is new"]}`)
	for _, word := range []string{"NO: run_dir /r was deleted", "TROUBLE", "the host key was replaced", "the store is new"} {
		if !strings.Contains(got, word) {
			t.Errorf("status lacks %q: %q", word, got)
		}
	}
}
