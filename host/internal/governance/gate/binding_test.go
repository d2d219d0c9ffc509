package gate

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/host/internal/governance"
)

func parsed(t testing.TB, text string) value {
	t.Helper()
	v, err := parseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// G2, G4, G6: exact decimals, no other type taken for one's own, paths.
func TestHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ arg, op, constraint, want string }{
		{"500", "lte", "500", "yes"}, {"500.00", "eq", "5e2", "yes"}, {"500.000000000000000000000000001", "lte", "500", "no"}, {"0.1", "eq", "1e-1", "yes"},
		{"123456789012345678901234567890", "gt", "123456789012345678901234567889", "yes"}, {"123456789012345678901234567890", "eq", "123456789012345678901234567891", "no"},
		{"1e400", "gt", "1e399", "yes"}, {"1e400", "lt", "1e401", "yes"}, {"1e999999999999999999999", "gt", "1e999999999999999999998", "yes"}, {"1e-999999999999999999999", "gt", "0", "yes"},
		{"-1e400", "lt", "-1e399", "yes"}, {"-0", "eq", "0", "yes"}, {"0e5", "eq", "0.000", "yes"}, {"-0.0", "gte", "0e9", "yes"}, {"9007199254740993", "eq", "9007199254740992", "no"},
		{"1", "ne", "2", "yes"}, {"1", "ne", "1.0", "no"}, {"2", "gte", "2", "yes"}, {"2", "lt", "2", "no"}, {"2", "gt", "2", "no"}, {"-2", "lt", "1", "yes"}, {"12", "gt", "2", "yes"}, {"0.5", "lt", "0.05", "no"},
		{`"850"`, "gt", "500", "never"}, {`"850"`, "lte", "500", "never"}, {`"850"`, "eq", "850", "never"}, {`"850"`, "ne", "850", "never"}, {"true", "eq", "1", "never"}, {"null", "eq", "null", "never"},
		{`"b"`, "gt", `"a"`, "never"}, {"true", "gt", "false", "never"}, {"[1]", "eq", "[1]", "never"}, {`{}`, "ne", `{}`, "never"}, {"1", "eq", "null", "never"},
		{`"a"`, "eq", `"a"`, "yes"}, {`"a"`, "eq", `"\u0061"`, "yes"}, {`"a"`, "eq", `"A"`, "no"}, {`"é"`, "eq", `"e\u0301"`, "no"}, {"true", "eq", "true", "yes"}, {"true", "ne", "false", "yes"},
		{`"a"`, "in", `["a","b"]`, "yes"}, {`"c"`, "in", `["a","b"]`, "no"}, {`1`, "in", `[1.0]`, "yes"}, {`1`, "in", `["1"]`, "never"}, {`"x"`, "in", `["y",1]`, "never"}, {`1`, "in", `["y",1]`, "yes"},
		{`"a"`, "in", `"abc"`, "never"}, {`"a"`, "in", `[]`, "no"}, {`["a"]`, "in", `[["a"]]`, "never"}, {`"a"`, "in", `{"a":1}`, "never"},
		{`["a","b"]`, "contains", `"a"`, "yes"}, {`["a","b"]`, "contains", `"c"`, "no"}, {`[1]`, "contains", `"1"`, "never"}, {`"abc"`, "contains", `"b"`, "yes"}, {`"abc"`, "contains", `"x"`, "no"},
		{`"abc"`, "contains", `1`, "never"}, {`{"a":1}`, "contains", `"a"`, "never"}, {strings.Repeat("1", maxNumber+1), "gt", "1", "never"}, {"1", "like", "1", "never"},
	} {
		is, ok := holds(parsed(t, c.arg), c.op, parsed(t, c.constraint))
		got := map[bool]string{true: "yes", false: "no"}[is]
		if !ok {
			got = "never"
		}
		if got != c.want {
			t.Errorf("%.40s %s %s: %s, want %s", c.arg, c.op, c.constraint, got, c.want)
		}
	}
}

// A decimal compares as the rational number that it is.
func TestDecimalIsExact(t *testing.T) {
	t.Parallel()
	gen := rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + rapid.StringMatching(`0|[1-9][0-9]{0,30}`).Draw(t, "whole")
		s += rapid.SampledFrom([]string{"", "." + rapid.StringMatching(`[0-9]{1,30}`).Draw(t, "frac")}).Draw(t, "with frac")
		if rapid.Bool().Draw(t, "with exp") {
			s += fmt.Sprintf("e%d", rapid.IntRange(-60, 60).Draw(t, "exp"))
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		dx, okX := parseDecimal(a)
		dy, okY := parseDecimal(b)
		if !okX || !okY || dx.compare(dy) != x.Cmp(y) || dx.compare(dx) != 0 {
			t.Fatalf("%s and %s: %d, want %d", a, b, dx.compare(dy), x.Cmp(y))
		}
	})
}

// G3: what is missing follows on_missing; an expired envelope is one WARN.
func TestIntent(t *testing.T) {
	t.Parallel()
	const body = `
intent {
  binding "cap" {
    tool       = "pay*"
    argument   = "/order/lines/1/a~1b"
    op         = "lte"
    constraint = "max"
    severity   = "ESCALATE"
    on_missing = "%s"
  }
  binding "other" {
    tool       = "pay.x"
    argument   = "/to"
    op         = "in"
    constraint = "payees"
    severity   = "WARN"
    on_missing = "allow"
  }
}`
	past := time.Unix(1e9, 0)
	whole := func() *governance.Envelope {
		return &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("500"), "payees": json.RawMessage(`["us"]`)}}
	}
	args := func(a string) string { return `{"order":{"lines":[0,{"a/b":` + a + `}]}}` }
	for _, c := range []struct {
		name, onMissing, tool, args string
		intent                      *governance.Envelope
		want                        governance.Outcome
		findings                    []string
	}{
		{"holds", "block", "pay", args("500"), whole(), governance.Allow, nil},
		{"violated", "block", "pay", args("500.01"), whole(), governance.Escalate, []string{"intent/cap=ESCALATE"}},
		{"other tool", "block", "play", args("501"), whole(), governance.Allow, nil},
		{"no argument", "block", "pay", `{"order":{"lines":[0]}}`, whole(), governance.Block, []string{"intent/cap/missing=BLOCK"}},
		{"no argument, warn", "warn", "pay", `{}`, whole(), governance.Warn, []string{"intent/cap/missing=WARN"}},
		{"no argument, allow", "allow", "pay", `{}`, whole(), governance.Allow, []string{"intent/cap/missing=ALLOW"}},
		{"no constraint", "block", "pay", args("1"), &governance.Envelope{}, governance.Block, []string{"intent/cap/missing=BLOCK"}},
		{"no envelope", "warn", "pay", args("1"), nil, governance.Warn, []string{"intent/cap/missing=WARN"}},
		{"string for a number", "block", "pay", args(`"1"`), whole(), governance.Block, []string{"failure/intent/cap=BLOCK"}},
		{"null for a number", "allow", "pay", args(`null`), whole(), governance.Block, []string{"failure/intent/cap=BLOCK"}},
		{"both", "block", "pay.x", `{"to":"me","order":{"lines":[0,{"a/b":501}]}}`, whole(), governance.Escalate, []string{"intent/cap=ESCALATE", "intent/other=WARN"}},
		{"expired", "block", "pay", args("501"), func() *governance.Envelope { e := whole(); e.Expires = &past; return e }(), governance.Escalate, []string{"intent/expired=WARN", "intent/cap=ESCALATE"}},
		{"expired, nothing else", "block", "ls", `{}`, func() *governance.Envelope { e := whole(); e.Expires = &past; return e }(), governance.Warn, []string{"intent/expired=WARN"}},
	} {
		in := call(c.tool, c.args)
		in.Intent = c.intent
		v := rules(t, fmt.Sprintf(body, c.onMissing)).Evaluate(in)
		expect(t, c.name, v, c.want, c.findings...)
		for _, f := range v.Findings {
			if f.Stage == StageIntent && f.Rule == "cap" && f.Constraint != "max" {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	r := rules(t, "budget {\n max_cost_usd = 1.5\n max_tokens = 10\n}")
	for _, c := range []struct {
		spent, limits Amount
		want          governance.Outcome
		findings      []string
	}{
		{Amount{1499999, 9}, Amount{}, governance.Allow, nil},
		{Amount{1500000, 9}, Amount{}, governance.Pause, []string{"budget/cost=PAUSE"}},
		{Amount{0, 10}, Amount{}, governance.Pause, []string{"budget/tokens=PAUSE"}},
		{Amount{2000000, 11}, Amount{}, governance.Pause, []string{"budget/cost=PAUSE", "budget/tokens=PAUSE"}},
		{Amount{2000000, 11}, Amount{CostMicroUSD: 3000000}, governance.Allow, nil}, // a raised ceiling (G8)
		{Amount{2000000, 11}, Amount{Tokens: 11}, governance.Pause, []string{"budget/tokens=PAUSE"}},
	} {
		in := call("x", `{}`)
		in.Spent, in.Limits = c.spent, c.limits
		expect(t, fmt.Sprint(c.spent, c.limits), r.Evaluate(in), c.want, c.findings...)
	}
	in := call("x", `{}`)
	in.Spent = Amount{1, 1}
	if v := rules(t, "").Evaluate(in); v.Outcome != governance.Allow || v.Risk != "" || strings.Join(v.NotEvaluated, " ") != "risk intent budget approve plugin" {
		t.Errorf("%+v", v)
	}
}
