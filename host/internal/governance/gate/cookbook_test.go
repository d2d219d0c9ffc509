package gate

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// recipe is one chapter of docs/governance-cookbook.md: rules, and calls that are
// judged by them.
var recipe = regexp.MustCompile("(?s)\n## ([^\n]+)\n.*?```hcl\n(.*?)```\n\n```cases\n(.*?)```")

// what is said of a call: the outcome, what is known around it, tool, arguments,
// and the arguments that would run.
var cookbookCase = regexp.MustCompile(`^([A-Z]+)((?: intent:\{[^}]*\}| after:\S+| spent:\S+)*) (\S+) (\{.*?\})(?: => (\{.*\}))?$`)

// Every recipe of the cookbook does what stands under it.
func TestTheCookbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/governance-cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := recipe.FindAllStringSubmatch(string(page), -1)
	if want := strings.Count(string(page), "\n```hcl\n"); len(recipes) < 10 || len(recipes) != want {
		t.Fatalf("%d recipes with cases, %d with rules", len(recipes), want)
	}
	for _, r := range recipes {
		compiled := rules(t, r[2])
		for _, line := range strings.Split(strings.TrimSpace(r[3]), "\n") {
			m := cookbookCase.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: cannot be read: %s", r[1], line)
				continue
			}
			in := call(m[3], m[4])
			around(t, &in, m[2])
			v := compiled.Evaluate(in)
			if string(v.Outcome) != m[1] {
				t.Errorf("%s: %s: %s (%s)", r[1], line, v.Outcome, v.Reason)
			}
			if m[5] != "" && !sameJSON(t, v.Args, m[5]) {
				t.Errorf("%s: %s: would run with %s", r[1], line, v.Args)
			}
		}
	}
}

// around reads what is known around a call.
func around(t *testing.T, in *Input, text string) {
	t.Helper()
	if _, rest, ok := strings.Cut(text, "intent:"); ok {
		body := rest[:strings.Index(rest, "}")+1]
		in.Intent = &governance.Envelope{Goal: "x"}
		if err := json.Unmarshal([]byte(body), &in.Intent.Constraints); err != nil {
			t.Fatal(text, err)
		}
	}
	for _, word := range strings.Fields(text) {
		if tool, ok := strings.CutPrefix(word, "after:"); ok {
			in.History = append(in.History, HistoryEntry{Tool: tool, Status: "ALLOW"})
		}
		if amount, ok := strings.CutPrefix(word, "spent:"); ok {
			usd, err := strconv.ParseFloat(amount, 64)
			if err != nil {
				t.Fatal(text, err)
			}
			in.Spent.CostMicroUSD = int64(usd * 1e6)
		}
	}
}

func sameJSON(t *testing.T, a json.RawMessage, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatalf("%s, %s", a, b)
	}
	return reflect.DeepEqual(x, y)
}
