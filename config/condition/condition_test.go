package condition

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func compile(t testing.TB, text string) (*Condition, hcl.Diagnostics) {
	t.Helper()
	expr, diags := hclsyntax.ParseExpression([]byte(text), "rule.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatalf("%s: %v", text, diags)
	}
	return Compile(expr)
}

func must(t testing.TB, text string) *Condition {
	t.Helper()
	c, diags := compile(t, text)
	if diags.HasErrors() {
		t.Fatalf("%s: %v", text, diags)
	}
	return c
}

// value is a JSON text as a value, numbers as they are written.
func value(t testing.TB, text string) cty.Value {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return toCty(t, v)
}

func toCty(t testing.TB, v any) cty.Value {
	switch v := v.(type) {
	case nil:
		return cty.NullVal(cty.DynamicPseudoType)
	case bool:
		return cty.BoolVal(v)
	case json.Number:
		return Number(string(v))
	case string:
		return cty.StringVal(v)
	case []any:
		out := []cty.Value{}
		for _, e := range v {
			out = append(out, toCty(t, e))
		}
		return cty.TupleVal(out)
	}
	out := map[string]cty.Value{}
	for k, e := range v.(map[string]any) {
		out[k] = toCty(t, e)
	}
	o, err := Object(out)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func vars(t testing.TB, args string) map[string]cty.Value {
	t.Helper()
	return map[string]cty.Value{
		"tool": cty.StringVal("refund"), "agent": cty.StringVal("agent-01"), "args": value(t, args),
		"mission": value(t, `{"id":"m-1","agent":"agent-01","runtime":"command","objective":"o"}`),
		"intent":  value(t, `{"id":"i","goal":"g","requested_by":{"type":"human","id":"h"},"constraints":{"max":500},"authority":{"pay":true},"expires":null,"metadata":{}}`),
		"history": value(t, `[{"tool":"backup","status":"completed"},{"tool":"refund","status":"failed"}]`),
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	const args = `{"amount":850,"text":"850","yes":true,"none":null,"list":["a","b"],"mixed":["a",1],"o":{"k":"v","n":1.50},
		"long":123456789012345678901234567890,"huge":1e400,"tiny":1e-400,"tenth":0.1,"dash-ed":"d","nfd":"e\u0301","empty":{},"multi":"one\npush --force"}`
	for _, c := range []struct{ when, want string }{
		// Numbers, exactly.
		{`args.amount > 500`, "true"}, {`args.amount <= 850`, "true"}, {`args.amount == 850.0`, "true"}, {`args.amount != 850`, "false"},
		{`args.long == 123456789012345678901234567890`, "true"}, {`args.long == 123456789012345678901234567891`, "false"},
		{`args.long > 123456789012345678901234567889`, "true"}, {`args.huge == 1e400`, "true"}, {`args.huge > 1e399`, "true"},
		{`args.huge > 1e401`, "false"}, {`args.tiny > 0`, "true"}, {`args.tiny < 1e-399`, "true"}, {`args.tenth == 0.1`, "true"}, {`args.tenth == 0.10`, "true"},
		{`args.tenth == 1e-1`, "true"}, {`args.amount + 1 == 851`, "true"}, {`-args.amount == -850`, "true"}, {`args.amount % 100 == 50`, "true"},
		// Nothing is converted.
		{`args.text > 500`, "error"}, {`args.text == 850`, "error"}, {`args.text != 850`, "error"}, {`args.amount == args.text`, "error"},
		{`args.amount == "850"`, "error"}, {`args.amount > "500"`, "load"}, {`"a" == 1`, "load"}, {`args.yes == "true"`, "error"}, {`args.yes == 1`, "error"},
		{`args.text + 1 == 851`, "error"}, {`-args.text == 1`, "error"}, {`args.yes ? true : false`, "true"}, {`args.text ? true : false`, "error"},
		{`args.text && true`, "error"}, {`!args.text`, "error"}, {`"true"`, "load"}, {`1`, "load"}, {`"${args.yes}"`, "true"}, {`"x${args.yes}"`, "load"}, {`args.text`, "error"},
		{`args.yes`, "true"}, {`args.list == ["a", "b"]`, "error"}, {`args.o == args.o`, "error"}, {`args.yes == true`, "true"}, {`args.yes > false`, "load"},
		{`abs(args.text) > 1`, "error"}, {`abs("850") > 1`, "load"}, {`upper(args.amount) == "850"`, "error"}, {`upper(args.yes) == "TRUE"`, "error"},
		{`(args.yes ? 1 : "2") == 1`, "true"}, {`(args.yes ? "2" : 1) == 1`, "error"}, {`args.list["0"] == "a"`, "error"},
		{`args["list"][0] == "a"`, "true"}, {`args.list[args.text] == "a"`, "error"}, {`"${args.amount}" == "850"`, "error"}, {`"${args.amount}." == "850."`, "true"}, {`"${args.list}" == "a"`, "error"},
		{`max(args.text, 1) == 850`, "error"}, {`join(",", args.list) == "a,b"`, "true"}, {`join(",", args.mixed) == "a,1"`, "error"},
		{`sort(args.list)[0] == "a"`, "true"}, {`strlen(args.amount) == 3`, "error"}, {`strlen(args.text) == 3`, "true"},
		// What is missing is an error, and null is not.
		{`args.missing == 1`, "error"}, {`args.missing != 1`, "error"}, {`args.missing == null`, "error"}, {`args.none == null`, "true"}, {`args.none != null`, "false"},
		{`null == args.none`, "true"}, {`args.amount == null`, "false"}, {`args.none == "x"`, "error"}, {`args.none == 1`, "error"}, {`args.none > 1`, "error"},
		{`args.amount.deep == 1`, "error"}, {`args.o.k == "v"`, "true"}, {`args.o.x == "v"`, "error"}, {`args.list[7] == "a"`, "error"}, {`args["dash-ed"] == "d"`, "true"},
		{`contains(keys(args), "missing")`, "false"}, {`contains(keys(args), "amount") && args.amount > 1`, "true"}, {`contains(keys(args.empty), "x")`, "false"},
		{`lookup(args, "missing", 0) == 0`, "true"}, {`lookup(args, "amount", 0) == 850`, "true"}, {`lookup(args.empty, "x", "d") == "d"`, "true"},
		// Logic: the left side first; an error stays one, and what decides decides.
		{`args.yes || args.missing == 1`, "true"}, {`!args.yes && args.missing == 1`, "false"}, {`args.missing == 1 || args.yes`, "true+error"},
		{`args.missing == 1 && !args.yes`, "error"}, {`args.missing == 1 && args.yes`, "error"}, {`args.missing == 1 || !args.yes`, "error"},
		{`!(args.missing == 1 && false)`, "true+error"}, {`!(args.missing == 1 || args.yes)`, "error"},
		// matches: RE2, whole text, strings only.
		{`matches("push .*--force", args.multi)`, "true"}, {`matches("one.push", args.multi)`, "true"}, {`matches("^push", args.multi)`, "false"},
		{`matches("(?m)^push", args.multi)`, "true"}, {`matches("8", args.amount)`, "error"}, {`matches("8", args.missing)`, "error"}, {`matches("8", args.none)`, "error"},
		{`matches("8", 850)`, "load"}, {`matches("(", args.text)`, "load"}, {`matches(args.text, "8")`, "load"}, {`matches("a")`, "load"}, {`matches("(?=a)", args.text)`, "load"},
		{`matches("^é$", args.nfd)`, "true"}, {`args.nfd == "é"`, "true"}, {`matches(1, args.text)`, "load"},
		// contains does not look past types.
		{`contains(args.list, "a")`, "true"}, {`contains(args.list, "x")`, "false"}, {`contains(args.list, 1)`, "error"}, {`contains(args.mixed, 1)`, "true"},
		{`contains(args.mixed, "x")`, "error"}, {`contains(["850", "1"], args.amount)`, "error"}, {`contains(args.text, "8")`, "error"},
		// The other variables, for, splat.
		{`tool == "refund" && agent == "agent-01" && mission.id == "m-1" && mission.runtime == "command"`, "true"}, {`intent.constraints.max < args.amount`, "true"},
		{`intent.authority.pay`, "true"}, {`intent.authority.other`, "error"}, {`intent.expires == null`, "true"}, {`intent.requested_by.type == "human"`, "true"},
		{`length(history) == 2`, "true"}, {`contains(history[*].tool, "backup")`, "true"}, {`length([for h in history : h if h.status == "failed"]) == 1`, "true"},
		{`length([for h in history : h if h.status]) == 1`, "error"}, {`length([for h in history : h if h.nope == "x"]) == 1`, "error"}, {`history[0].tool == "backup"`, "true"},
		{`length([for k, v in args.o : k]) == 2`, "true"}, {`length([for x in args.text : x]) == 1`, "error"}, {`length(args.text[*]) == 1`, "error"},
		{`length(args.none[*]) == 0`, "error"}, {`length([for x in args.none : x]) == 0`, "error"},
		{`args.o == {k = "v"}`, "error"}, {`{a = args.text}.a == "850"`, "true"}, {`{(args.text) = 1}["850"] == 1`, "true"}, {`args.amount / 0 == 1`, "error"},
		// What is not there.
		{`can(args.missing)`, "load"}, {`try(args.missing, 1) == 1`, "load"}, {`env("HOME") == ""`, "load"}, {`secret("env:X") == ""`, "load"}, {`tonumber(args.text) == 1`, "load"},
		{`file("/etc/passwd") == ""`, "load"}, {`jsondecode(args.text) == 1`, "load"}, {`regex("a", args.text) == ""`, "load"}, {`timestamp() == ""`, "load"}, {`provider::x::f(1) == 1`, "load"},
		{`arg.amount > 1`, "load"}, {`tool.name == "x"`, "load"}, {`mission.goal == "x"`, "load"}, {`intent.constraint.max == 1`, "load"}, {`x == 1`, "load"},
		{`upper("a", "b") == ""`, "load"}, {`upper() == ""`, "load"}, {`max(args.list...) == 1`, "load"}, {`length([for a in args.list : [for b in args.list : b]]) == 1`, "load"},
		{`length([for args in history : args]) == 1`, "load"}, {`args.amount == 1e99999`, "load"},
	} {
		cond, diags := compile(t, c.when)
		if c.want == "load" {
			if !diags.HasErrors() {
				t.Errorf("%s is accepted", c.when)
			}
			for _, d := range diags {
				if d.Subject == nil || d.Subject.Start.Line != 1 || d.Detail == "" {
					t.Errorf("%s: a diagnostic without a place or a text: %v", c.when, d)
				}
			}
			continue
		}
		if diags.HasErrors() {
			t.Errorf("%s is refused: %v", c.when, diags)
			continue
		}
		holds, err := cond.Eval(vars(t, args))
		got := map[bool]string{true: "true", false: "false"}[holds]
		if err != nil {
			got = map[bool]string{true: "true+error", false: "error"}[holds]
		}
		if got != c.want {
			t.Errorf("%s is %s (%v), want %s", c.when, got, err, c.want)
		}
	}
}

// A number that cty would round is not compared at all.
func TestLongNumbersAreOpaque(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("7", MaxDigits)
	for arg, want := range map[string]bool{long: true, long + "7": false, long + "000": true, "0." + strings.Repeat("0", 300) + "1": true, "1e4001": false, "1e-4002": false, "0e99999999999": true, "1e99999999999": false} {
		holds, err := must(t, `args.n >= 0 && args.n == args.n`).Eval(vars(t, `{"n":`+arg+`}`))
		if holds != want || (err == nil) != want {
			t.Errorf("%.40s: %v, %v", arg, holds, err)
		}
	}
	// The longest ones that are compared still differ in their last digit.
	a, b := Number(long[1:]+"1"), Number(long[1:]+"2")
	if a.AsBigFloat().Cmp(b.AsBigFloat()) != -1 {
		t.Error("two numbers that differ in the last digit are equal")
	}
	if _, err := Object(map[string]cty.Value{"é": cty.True, "e\u0301": cty.False}); err == nil {
		t.Error("two keys that cty makes one are accepted")
	}
}

// A call cannot make a decision take long: lists and texts out of proportion
// are not looked at.
func TestLargeCallsAreBounded(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat(`"a",`, maxElements) + `"b"]`
	args := `{"list":` + list + `,"short":["a"],"sep":"` + strings.Repeat("x", 5000) + `"}`
	for when, ok := range map[string]bool{
		`length([for x in args.list : x]) == 1`: false, `contains(args.list, "b")`: false, `join(args.sep, args.list) == ""`: false,
		`replace(args.sep, "x", args.sep) == ""`: false, `strlen(join(",", args.list)) > 1 && length(args.list) > 10000`: true, `contains(args.short, "a")`: true,
		`replace(args.short[0], "a", "b") == "b"`: true,
	} {
		if holds, err := must(t, when).Eval(vars(t, args)); holds != ok || (err == nil) != ok {
			t.Errorf("%s: %v, %v", when, holds, err)
		}
	}
}

// Whatever the layout, the text is the same, and it compiles to itself.
func TestTextIsCanonical(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{`args.amount>500`, `args.amount > 500`, "(args.amount\n>  500)", `args["amount"] > 5e2`, `((args.amount)) > 500.0`, "args.amount > /* much */ 500"},
		{`args.a == "x" && !args.b`, `(args.a=="x")&&(!args.b)`},
		{`matches("a\"b", "${args.x}")`, `matches("a\"b",args.x)`},
		{`[for h in history: h.tool if h.status == "x"] == null`, "[ for h in history :\nh.tool if (h.status==\"x\") ] == null"},
	} {
		first := must(t, same[0]).Text()
		for _, s := range same {
			if got := must(t, s).Text(); got != first {
				t.Errorf("%s is %s, and %s is %s", same[0], first, s, got)
			}
		}
		if again := must(t, first).Text(); again != first {
			t.Errorf("%s compiles to %s", first, again)
		}
	}
	seen := map[string]string{}
	for _, s := range []string{`args.a == 1`, `args.a == 2`, `args.a != 1`, `args.b == 1`, `args.a == "1"`, `args.a == args.b`, `args.a == -1`, `args.a - 1 == 1`, `args["a.b"] == 1`, `args.a.b == 1`,
		`args.a == null`, `args.a == "null"`, `"x${args.a}" == "1"`, `"x$${args.a}" == "1"`, `matches("args.a", args.a)`, `args.a[0] == 1`, `args.a[*] == 1`,
		`(args.a == 1 || args.b == 1) && args.c == 1`, `args.a == 1 || args.b == 1 && args.c == 1`} {
		text := must(t, s).Text()
		if other, dup := seen[text]; dup {
			t.Errorf("%s and %s have the same text %s", s, other, text)
		}
		seen[text] = s
	}
}

// An error says what and where, and never a value of the call.
func TestErrorsHoldNoValues(t *testing.T) {
	t.Parallel()
	const planted = "PLANTED"
	args := `{"s":"` + planted + `","o":{"` + planted + `":1},"l":["` + planted + `"],"n":1}`
	for _, when := range []string{`args.s > 1`, `args.s`, `args.o[args.s] == args.s`, `args.l[args.s] == 1`, `args.l[5] == ""`, `lookup(args.o, args.s, "x") == "x"`,
		`substr(args.s, args.n, args.s) == ""`, `args.s.x == 1`, `{(args.s) = 1}.x == 1`, `element(args.l, args.s) == 1`, `"${args.l}" == ""`, `length([for x in args.l : x.y]) == 1`,
		`length({for x in args.l : x => x.z}) == 1`, `args.n + args.s == 1`, `matches("x", args.l)`, `args.l[*].a == 1`, `slice(args.l, 3, 9) == 1`, `args.s == args.n`} {
		_, err := must(t, when).Eval(vars(t, args))
		if err == nil {
			t.Errorf("%s has no error", when)
			continue
		}
		if strings.Contains(err.Error(), planted) {
			t.Errorf("%s tells a value: %v", when, err)
		}
		if !strings.HasPrefix(err.Error(), "rule.hcl:1,") {
			t.Errorf("%s does not say where: %v", when, err)
		}
	}
}

func TestConditionsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	c := must(t, `contains(history[*].tool, "backup") && length([for h in history : h if h.status == "failed"]) == 1 && matches("^8", args.text)`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if holds, err := c.Eval(vars(t, `{"text":"850"}`)); !holds || err != nil {
					t.Error(holds, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzCondition: whatever the text and the arguments, compiling and evaluating
// end without a panic, and the canonical text means the same.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{`args.amount > 500`, `matches("push .*--force", args.command)`, `args.a == "x" || !args.b && args.c[0].d != null`, `length([for h in history : h if h.tool == tool]) > 3`,
		`"x${args.a}y" == "${args.b}"`, `args.a ? args.b : args.c`, `{a = 1, (args.b) = 2}["a"] == 1`, `history[*].tool == null`, `-args.x * 3 % 2 >= abs(args.y)`, `contains(keys(args), "x")`, "<<E\nx\nE\n"} {
		f.Add(s, `{"amount":1e3,"a":"x","b":true,"c":[{"d":1}],"command":"push"}`)
	}
	f.Fuzz(func(t *testing.T, text, args string) {
		if len(text) > 2000 || len(args) > 5000 {
			return
		}
		expr, diags := hclsyntax.ParseExpression([]byte(text), "rule.hcl", hcl.InitialPos)
		if diags.HasErrors() {
			return
		}
		c, diags := Compile(expr)
		if (c == nil) != diags.HasErrors() {
			t.Fatalf("condition is nil: %v, diagnostics: %v", c == nil, diags)
		}
		var probe map[string]any
		d := json.NewDecoder(strings.NewReader(args))
		d.UseNumber()
		if c == nil || d.Decode(&probe) != nil || probe == nil {
			return
		}
		attrs := map[string]cty.Value{}
		for k, v := range probe {
			attrs[k] = toCty(t, v)
		}
		obj, err := Object(attrs)
		if err != nil {
			return
		}
		v := vars(t, `{}`)
		v["args"] = obj
		holds, err := c.Eval(v)
		again, diags := func() (*Condition, hcl.Diagnostics) {
			e, d := hclsyntax.ParseExpression([]byte(c.Text()), "again.hcl", hcl.InitialPos)
			if d.HasErrors() {
				return nil, d
			}
			return Compile(e)
		}()
		if diags.HasErrors() {
			t.Fatalf("the text of %q does not compile: %q: %v", text, c.Text(), diags)
		}
		h2, err2 := again.Eval(v)
		if holds != h2 || (err == nil) != (err2 == nil) || again.Text() != c.Text() {
			t.Fatalf("%q is %v, %v; its text %q is %v, %v (%q)", text, holds, err, c.Text(), h2, err2, again.Text())
		}
	})
}
