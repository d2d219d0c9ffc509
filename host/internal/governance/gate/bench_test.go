package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// hundred is 100 rules of all stages, of which 10 are for the tool "Bash": 4
// policy rules (2 with patterns), 3 risk rules, 2 bindings and an approve rule.
func hundred(b *testing.B) *Rules {
	var p, risk, bind, approve strings.Builder
	for i := range 46 {
		fmt.Fprintf(&p, "rule \"o%d\" {\n tool = \"mcp__server%d__*\"\n effect = \"warn\"\n when = args.amount > %d\n}\n", i, i, i)
	}
	p.WriteString(`
rule "force" {
  tool   = "Bash"
  when   = matches("push .*--force", args.command)
  effect = "deny"
}
rule "root" {
  tool   = "Bash"
  when   = matches("rm\\s+-[rf]+\\s+/($|\\s)", args.command) && mission.runtime == "claude-code"
  effect = "deny"
}
rule "long" {
  tool   = "B*"
  when   = args.timeout > 600000 || args.background
  effect = "warn"
}
rule "cwd" {
  tool   = "[A-C]ash"
  when   = args.cwd != "/workspace" && !contains(["/tmp", "/src"], args.cwd)
  effect = "challenge"
}
`)
	for i := range 22 {
		fmt.Fprintf(&risk, "rule \"o%d\" {\n tool = \"tool%d\"\n risk = \"MEDIUM\"\n when = args.amount > %d\n}\n", i, i, i)
	}
	risk.WriteString(`
rule "net" {
  tool = "Bash"
  when = matches("curl|wget", args.command)
  risk = "MEDIUM"
}
rule "sudo" {
  tool = "Bash"
  when = matches("\\bsudo\\b", args.command)
  risk = "HIGH"
}
rule "many" {
  tool = "Bash"
  when = args.timeout * 2 > 10000000
  risk = "MEDIUM"
}
`)
	for i := range 13 {
		fmt.Fprintf(&bind, "binding \"o%d\" {\n tool = \"refund%d*\"\n argument = \"/amount\"\n constraint = \"max\"\n}\n", i, i)
	}
	bind.WriteString("binding \"t\" {\n tool = \"Bash\"\n argument = \"/timeout\"\n constraint = \"max\"\n}\nbinding \"c\" {\n tool = \"Ba*\"\n argument = \"/cwd\"\n constraint = \"dirs\"\n op = \"in\"\n}\n")
	for i := range 9 {
		fmt.Fprintf(&approve, "rule \"o%d\" {\n tool = \"deploy%d\"\n}\n", i, i)
	}
	approve.WriteString("rule \"push\" {\n tool = \"Bash\"\n when = matches(\"^git push\", args.command)\n}\n")
	return rules(b, "policy {\n default = \"allow\"\n"+p.String()+"}\nrisk {\n"+risk.String()+"}\nintent {\n"+bind.String()+"}\napprove {\n"+approve.String()+"}\nbudget {\n max_cost_usd = 5\n}")
}

// BenchmarkDecision100Rules is the figure decision_p50_us: 100 rules, of which
// 10 are for the call.
func BenchmarkDecision100Rules(b *testing.B) {
	r := hundred(b)
	if n := len(r.policy) + len(r.g.Risk.Rules) + len(r.g.Bindings); n != 100 {
		b.Fatalf("%d rules", n)
	}
	if n := len(r.byTool.rules("Bash")) + len(r.risk.rules("Bash")) + len(r.binding.rules("Bash")); n != 10 {
		b.Fatalf("%d rules apply", n)
	}
	in := call("Bash", `{"command":"go test ./... && git status","timeout":120000,"background":false,"cwd":"/workspace","description":"Run the tests"}`)
	in.Mission = Mission{"m-1", "agent-01", "claude-code", "fix the build"}
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("600000"), "dirs": json.RawMessage(`["/workspace","/tmp"]`)}}
	if v := r.Evaluate(in); v.Outcome != governance.Allow || len(v.Findings) != 0 {
		b.Fatalf("%+v", v)
	}
	times := make([]time.Duration, 0, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		r.Evaluate(in)
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50_us")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99_us")
}

// BenchmarkDecisionLargeArgs has a file of 256 KiB in its arguments.
func BenchmarkDecisionLargeArgs(b *testing.B) {
	r := hundred(b)
	in := call("Bash", `{"command":"x","timeout":1,"background":false,"cwd":"/tmp","content":"`+strings.Repeat("line of text\\n", 256*1024/14)+`"}`)
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("600000"), "dirs": json.RawMessage(`["/workspace","/tmp"]`)}}
	for b.Loop() {
		r.Evaluate(in)
	}
}
