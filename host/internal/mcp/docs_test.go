package mcp

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/mcp/tools"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/control-sidecars.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The examples of docs/control-sidecars.md work, in their order, against the
// real domain: only the ids are put in.
func TestTheExamplesOfTheDocsWork(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page(t), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d examples", len(blocks))
	}
	ids := strings.NewReplacer("wc_goal_abcdefghijklmnop", r.ctx.GoalID, "wc_sess_abcdefghijklmnop", r.ctx.SessionID, "PROJECT", r.ctx.Project)
	for _, b := range blocks {
		var c struct {
			Tool      string          `json:"tool"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if err := json.Unmarshal([]byte(b[1]), &c); err != nil {
			t.Fatalf("%v: %s", err, b[1])
		}
		out := r.must(c.Tool, ids.Replace(string(c.Arguments)))
		if !strings.Contains(string(c.Arguments), `"control"`) {
			continue
		}
		if got := r.control(out); !got.Main.Success || got.Before != nil && !got.Before.Success || got.After != nil && !got.After.Success {
			t.Errorf("%s: %s", b[1], out)
		}
	}
}

// R1 to R43 stand in docs/control-sidecars.md, each with a test that is there.
func TestEveryRequirementHasATest(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, dir := range []string{".", "kernel", "envelope", "strict", "tools"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f.Name(), "_test.go") {
				text, err := os.ReadFile(dir + "/" + f.Name())
				if err != nil {
					t.Fatal(err)
				}
				tests.Write(text)
			}
		}
	}
	rows := regexp.MustCompile("(?m)^\\| R([0-9]+) \\| .+ \\| `(Test[A-Za-z0-9_]+)`( [A-Y])? \\|$").FindAllStringSubmatch(page(t), -1)
	if len(rows) != 43 {
		t.Errorf("%d rows", len(rows))
	}
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is R%s", i+1, row[1])
		}
		if !strings.Contains(tests.String(), "func "+row[2]+"(") {
			t.Errorf("R%s names %s, which does not exist", row[1], row[2])
		}
		if (row[3] != "") != (row[2] == "TestAcceptance") {
			t.Errorf("R%s: only TestAcceptance has letters", row[1])
		}
	}
}

// R9: models are told how to use an envelope, with one example of each kind that
// the grammar takes, in the description of its canonical tool.
func TestDescriptionsGuide(t *testing.T) {
	t.Parallel()
	g, text := envelope.New(), page(t)
	for _, tool := range tools.All(nil, &tools.Effects{}) {
		if !strings.Contains(text, "`"+tool.Name+"`") {
			t.Errorf("docs/control-sidecars.md does not have %s", tool.Name)
		}
		if tool.Name == "run_command" && !strings.Contains(tool.Describe(true), "already established") {
			t.Error("run_command does not say what an envelope is for")
		}
		for _, k := range append(envelope.Before(), envelope.After(true)...) {
			if k.Tool() != tool.Name {
				continue
			}
			_, example, ok := strings.Cut(tool.Describe(true), `"_wc":`)
			if !ok || !strings.Contains(example, string(k)) {
				t.Errorf("%s has no example of %s", tool.Name, k)
				continue
			}
			v := parsed(t, example)
			if _, err := g.Parse(v, envelope.All); err != nil {
				t.Errorf("the example of %s: %v", k, err)
			}
		}
	}
}

func parsed(t *testing.T, text string) strict.Value {
	t.Helper()
	v, err := strict.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}
