package envelope

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

const (
	sess = "wc_sess_abcdefghijklmnop"
	msg  = "wc_msg_abcdefghijklmnop"
)

// payloads are one good payload of each kind.
func payloads() map[Kind]string {
	return map[Kind]string{
		GoalProgress:         `{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"completed_step_ids":["build"],"current_step_id":"test","summary":"s","idempotency_key":"k"}`,
		WakeConsume:          `{"agent_id":"a","endpoint_id":"e","expected_controller_generation":1,"wake_id":"w","consume_token":"t"}`,
		AttemptHeartbeat:     `{"task_id":"t","attempt_id":"a","assignee_agent_id":"g","attempt_fence":"f","attempt_controller_generation":1}`,
		SessionContextUpdate: `{"project":"p","session_id":"` + sess + `","execution_context":{"default_cwd":"/","default_shell":"sh"}}`,
		GoalCompletion:       `{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"idempotency_key":"k","terminal_reason":"done"}`,
		SessionClose:         `{"session_id":"` + sess + `"}`,
		TodoCompletion:       `{"session_id":"` + sess + `","message_id":"` + msg + `","answer":"a","completion_key":"c","expected_assignment_fence":"f"}`,
	}
}

// row is an envelope and whether the grammar takes it.
type row struct {
	text string
	ok   bool
}

// corpus is the closed grammar of control, in examples.
func corpus() []row {
	rows := []row{
		{`{}`, true}, {`{"control":{}}`, true}, {`null`, false}, {`[]`, false}, {`"x"`, false}, {`true`, false},
		{`{"control":null}`, false}, {`{"control":[]}`, false}, {`{"control":"x"}`, false},
		{`{"control":{"before":null}}`, false}, {`{"control":{"before":[]}}`, false}, {`{"control":{"before":{}}}`, false},
		{`{"control":{"after_success":null}}`, false}, {`{"control":{"after_success":{}}}`, false}, {`{"control":{"after":{}}}`, false},
		{`{"control":{"Before":{"goal_progress":{}}}}`, false}, {`{"control":{"communication":{}}}`, false},
		{`{"Control":{}}`, false}, {`{"ack_ref":"x"}`, false}, {`{"reply":{}}`, false}, {`{"compact_execution":true}`, false},
		{`{"record":null}`, false}, {`{"record":5}`, false}, {`{"record":"` + sess + `"}`, true},
		{`{"record":"` + sess + `","ack":["` + msg + `"]}`, true}, {`{"ack":null}`, false}, {`{"ack":["` + msg + `",5]}`, false}, {`{"ack":[]}`, true},
		{`{"context":["a"]}`, true}, {`{"context":"a"}`, false}, {`{"context":[null]}`, false}, {`{"context":null}`, false},
		{`{"record":"` + sess + `","resolve":{"message_id":"` + msg + `","resolution":"r"}}`, true},
		{`{"resolve":null}`, false}, {`{"resolve":["` + msg + `","r"]}`, false},
		{`{"record":"` + sess + `","resolve":{"message_id":"` + msg + `"}}`, false},
		{`{"record":"` + sess + `","resolve":{"message_id":"` + msg + `","resolution":"r","more":1}}`, false},
		{`{"ack":[` + strings.TrimSuffix(strings.Repeat(`"`+msg+`",`, 9), ",") + `]}`, false},
		{`{"context":["a","b","c","d","e","f","g","h","i"]}`, false},
	}
	phase := map[string][]Kind{"before": Before(), "after_success": After(true)}
	all := payloads()
	for name, kinds := range phase {
		for k, good := range all {
			in := func(text string) string { return fmt.Sprintf(`{"control":{%q:{%q:%s}}}`, name, k, text) }
			belongs := false
			for _, one := range kinds {
				belongs = belongs || one == k
			}
			rows = append(rows, row{in(good), belongs})
			if !belongs {
				continue
			}
			more := strings.TrimSuffix(good, "}") + `,"unknown":1}`
			rows = append(rows, row{in(more), false}, row{in(`{}`), false}, row{in(`[]`), false}, row{in(`null`), false}, row{in(`"x"`), false},
				row{fmt.Sprintf(`{"control":{%q:[%s]}}`, name, good), false},
				row{fmt.Sprintf(`{"control":{%q:[{%q:%s}]}}`, name, k, good), false},
				row{fmt.Sprintf(`{"control":{%q:{%q:%s,"unknown":{}}}}`, name, k, good), false})
			for _, other := range kinds {
				if other != k {
					rows = append(rows, row{fmt.Sprintf(`{"control":{%q:{%q:%s,%q:%s}}}`, name, k, good, other, all[other]), false})
				}
			}
			var members map[string]json.RawMessage
			_ = json.Unmarshal([]byte(good), &members)
			for m := range members { // every member: null, and of another type
				for _, bad := range []string{`null`, `{"x":1}`, `true`} {
					if m == "execution_context" && bad == `{"x":1}` {
						bad = `["/"]`
					}
					rows = append(rows, row{in(set(members, m, bad)), false})
				}
			}
		}
	}
	return append(rows, row{fmt.Sprintf(`{"control":{"before":{"goal_progress":%s},"after_success":{"todo_completion":%s}}}`, all[GoalProgress], all[TodoCompletion]), true},
		row{`{"control":{"after_success":{"goal_completion":{"goal_id":"g","expected_revision":1,"idempotency_key":"k","lifecycle":"completed"}}}}`, false},
		row{`{"control":{"before":{"attempt_heartbeat":{"task_id":"t","attempt_id":"a","assignee_agent_id":"g","attempt_fence":"f","attempt_controller_generation":"1"}}}}`, false})
}

func set(members map[string]json.RawMessage, name, value string) string {
	out := map[string]json.RawMessage{}
	for k, v := range members {
		out[k] = v
	}
	out[name] = json.RawMessage(value)
	b, _ := json.Marshal(out)
	return string(b)
}

func parse(t testing.TB, text string) strict.Value {
	t.Helper()
	v, err := strict.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestGrammarAndSchemaGiveTheSameVerdict(t *testing.T) {
	t.Parallel()
	g := New()
	full, brief := compile(t, g, Full), compile(t, g, Brief)
	good := 0
	for _, c := range corpus() {
		_, err := g.Parse(parse(t, c.text), All)
		if (err == nil) != c.ok {
			t.Errorf("%s: grammar says %v", c.text, err)
		}
		var plain any
		_ = json.Unmarshal([]byte(`{"_wc":`+c.text+`}`), &plain)
		if err := full.Validate(plain); (err == nil) != c.ok {
			t.Errorf("%s: full schema says %v", c.text, err)
		}
		if err := brief.Validate(plain); c.ok && err != nil { // says less, and nothing wrong
			t.Errorf("%s: brief schema says %v", c.text, err)
		}
		if c.ok {
			good++
		}
	}
	if n := len(corpus()); n < 150 || good < 12 {
		t.Errorf("only %d rows, %d good", n, good)
	}
}

func compile(t *testing.T, g *Grammar, d Detail) *jsonschema.Resolved {
	t.Helper()
	p, defs := g.Schema(All, true, d)
	text := `{"type":"object","properties":{` + string(p) + `}`
	if defs != nil {
		text += `,"$defs":` + string(defs)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(text+"}"), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// R3: six payloads are the request of their canonical tool, one is its subset.
func TestPayloadsAreTheRequestsOfTheirCanonicalTools(t *testing.T) {
	t.Parallel()
	g := New()
	for k, shape := range map[Kind]*strict.Shape{
		GoalProgress: strict.ShapeOf[workflow.CheckpointGoal](), WakeConsume: strict.ShapeOf[workflow.ConsumeWake](),
		AttemptHeartbeat: strict.ShapeOf[workflow.Heartbeat](), SessionContextUpdate: strict.ShapeOf[workflow.UpdateSessionContext](),
		SessionClose: strict.ShapeOf[workflow.CloseSession](), TodoCompletion: strict.ShapeOf[workflow.CompleteMessage](),
	} {
		if got, want := string(g.Shape(k).Schema(false)), string(shape.Schema(false)); got != want {
			t.Errorf("%s: %s is not %s", k, got, want)
		}
	}
	whole := strict.ShapeOf[workflow.UpdateGoal]().Names()
	for _, n := range g.Shape(GoalCompletion).Names() {
		if !strings.Contains(strings.Join(whole, " ")+" ", n+" ") || n == "lifecycle" {
			t.Errorf("goal_completion has %s", n)
		}
	}
	e, err := g.Parse(parse(t, `{"control":{"after_success":{"goal_completion":`+payloads()[GoalCompletion]+`}}}`), All)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := e.Control.After.Request.(workflow.UpdateGoal); !ok || u.Lifecycle == nil || *u.Lifecycle != "completed" || *u.TerminalReason != "done" {
		t.Errorf("%+v", e.Control.After.Request)
	}
}

func TestEnvelopeIsReadWhole(t *testing.T) {
	t.Parallel()
	all := payloads()
	e, err := New().Parse(parse(t, `{"context":["mission"],"ack":["`+msg+`"],"resolve":{"message_id":"`+msg+`","resolution":" r "},"record":"`+sess+
		`","control":{"after_success":{"todo_completion":`+all[TodoCompletion]+`},"before":{"goal_progress":`+all[GoalProgress]+`}}}`), All)
	if err != nil {
		t.Fatal(err)
	}
	step := "test"
	want := &Envelope{Record: sess, Ack: []string{msg}, Resolve: &Resolution{msg, "r"}, Context: []string{"mission"}, Control: &Phases{
		Before: &Mutation{GoalProgress, workflow.CheckpointGoal{GoalID: "wc_goal_abcdefghijklmnop", ExpectedRevision: 3, CompletedStepIDs: []string{"build"}, CurrentStepID: &step, Summary: "s", IdempotencyKey: "k"}},
		After:  &Mutation{TodoCompletion, workflow.CompleteMessage{SessionID: sess, MessageID: msg, Answer: "a", CompletionKey: "c", ExpectedAssignmentFence: "f"}},
	}}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got %+v", e)
	}
}

func TestFieldsOfAClassAreTheOnlyOnes(t *testing.T) {
	t.Parallel()
	g := New()
	each := map[Fields]string{Control: `"control":{}`, Record: `"record":"` + sess + `"`, Ack: `"ack":[]`,
		Resolve: `"record":"` + sess + `","resolve":{"message_id":"` + msg + `","resolution":"r"}`, Context: `"context":[]`}
	for _, allowed := range []Fields{All, Record | Ack, Record | Ack | Resolve | Context, Ack | Context, 0} {
		for f, text := range each {
			_, err := g.Parse(parse(t, "{"+text+"}"), allowed)
			want := allowed&f != 0
			if f == Resolve {
				want = want && allowed&Record != 0
			}
			if (err == nil) != want {
				t.Errorf("allowed %b, %s: %v", allowed, text, err)
			}
		}
		p, _ := g.Schema(allowed, false, Full)
		for f, name := range map[Fields]string{Control: "control", Record: "record", Ack: "ack", Resolve: "resolve", Context: "context"} {
			if strings.Contains(string(p), `"`+name+`":`) != (allowed&f != 0) {
				t.Errorf("allowed %b: the schema and %s", allowed, name)
			}
		}
	}
}

func TestValuesOfTheOtherMembers(t *testing.T) {
	t.Parallel()
	g := New()
	res := func(text string) string {
		return `{"record":"` + sess + `","resolve":{"message_id":"` + msg + `","resolution":"` + text + `"}}`
	}
	for text, ok := range map[string]bool{
		`{"record":""}`: false, `{"record":"~s1"}`: false, `{"record":"wc_sess_short"}`: false, `{"record":"wc_sess_0123456789abcdef0123456789abcdef"}`: true,
		`{"record":" ` + sess + `"}`: false, `{"record":"wc_msg_abcdefghijklmnop"}`: false,
		`{"ack":["` + msg + `"]}`: false, `{"record":"` + sess + `","ack":["` + sess + `"]}`: false,
		res(strings.Repeat("é", 8000)): true, res(strings.Repeat("é", 8001)): false, res("   "): false, res("  x " + strings.Repeat(" ", 9000)): true,
		`{"resolve":{"message_id":"` + msg + `","resolution":"r"}}`: false,
		`{"context":["` + strings.Repeat("é", 64) + `"]}`:           true, `{"context":["` + strings.Repeat("é", 65) + `"]}`: false,
		`{"context":["a b"]}`: false, `{"context":[""]}`: false, `{"context":["a\u0007"]}`: false,
	} {
		if _, err := g.Parse(parse(t, text), All); (err == nil) != ok {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// Names and values under _wc may be secrets: no refusal repeats them.
func TestRefusalsRepeatNothing(t *testing.T) {
	t.Parallel()
	g := New()
	for _, text := range []string{`{"sentinel":1}`, `{"control":{"sentinel":1}}`, `{"control":{"before":{"sentinel":{}}}}`,
		`{"control":{"before":{"goal_progress":{"sentinel":"sentinel"}}}}`, `{"record":"sentinel"}`, `{"context":["sentinel \u0000"]}`,
		`{"control":{"before":{"attempt_heartbeat":{"task_id":"t","attempt_id":"a","assignee_agent_id":"g","attempt_fence":["sentinel"],"attempt_controller_generation":1}}}}`} {
		_, err := g.Parse(parse(t, text), All)
		if _, is := AsError(err); !is || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSplitCutsTheEnvelopeAndRefusesRetiredNames(t *testing.T) {
	t.Parallel()
	b, wc, err := Split(parse(t, `{"a": 1.0,"_wc":{"control":{}},"b":{"_wc":"data"}}`))
	if err != nil || string(b.Raw) != `{"a":1.0,"b":{"_wc":"data"}}` || string(wc.Raw) != `{"control":{}}` {
		t.Errorf("%s, %s, %v", b.Raw, wc.Raw, err)
	}
	args := parse(t, `{ "a" : 1 }`)
	if b, wc, err := Split(args); err != nil || wc.Kind != strict.Absent || string(b.Raw) != `{ "a" : 1 }` {
		t.Error("arguments without an envelope are not as they came")
	}
	for _, name := range retired() {
		if _, _, err := Split(parse(t, `{"`+name+`":"sentinel"}`)); err == nil || !strings.Contains(err.Error(), "_wc") || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzGrammar: whatever is taken has at most one mutation a phase, of that phase,
// and the full schema takes it too.
func FuzzGrammar(f *testing.F) {
	for _, c := range corpus() {
		f.Add([]byte(c.text))
	}
	g := New()
	p, defs := g.Schema(All, true, Full)
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{`+string(p)+`},"$defs":`+string(defs)+`}`), &s); err != nil {
		f.Fatal(err)
	}
	schema, err := s.Resolve(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := strict.Parse(text)
		if err != nil {
			return
		}
		e, err := g.Parse(v, All)
		if err != nil {
			if _, is := AsError(err); !is {
				t.Fatalf("%T", err)
			}
			return
		}
		var plain any
		if err := json.Unmarshal([]byte(`{"_wc":`+string(text)+`}`), &plain); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(plain); err != nil {
			t.Fatalf("taken, and the schema says %v", err)
		}
		if (e.Control != nil) != v.Has("control") {
			t.Fatal("control")
		}
		if c := e.Control; c != nil && (c.Before != nil && c.Before.Kind.Closing() || c.After != nil && c.After.Kind == GoalProgress) {
			t.Fatal("a kind in the wrong phase")
		}
	})
}
