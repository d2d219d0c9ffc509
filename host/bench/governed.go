package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
)

// manyRules is a governance block with 100 rules, of which 10 are for the tool
// Bash.
func manyRules() string {
	var policy, risk, approve strings.Builder
	for i := range 50 {
		fmt.Fprintf(&policy, "rule \"p%d\" {\n tool = \"mcp__s%d__*\"\n effect = \"warn\"\n when = args.amount > %d\n}\n", i, i, i)
	}
	for i := range 5 {
		fmt.Fprintf(&policy, "rule \"b%d\" {\n tool = \"Bash\"\n effect = \"deny\"\n when = matches(\"rm -rf /x%d\", args.command)\n}\n", i, i)
	}
	for i := range 30 {
		fmt.Fprintf(&risk, "rule \"r%d\" {\n tool = \"tool%d\"\n risk = \"MEDIUM\"\n when = args.amount > %d\n}\n", i, i, i)
	}
	for i := range 4 {
		fmt.Fprintf(&risk, "rule \"c%d\" {\n tool = \"Bash\"\n risk = \"HIGH\"\n when = matches(\"sudo x%d\", args.command)\n}\n", i, i)
	}
	for i := range 10 {
		fmt.Fprintf(&approve, "rule \"a%d\" {\n tool = \"push%d\"\n}\n", i, i)
	}
	approve.WriteString("rule \"pushes\" {\n tool = \"Bash\"\n when = matches(\"^git push\", args.command)\n}\n")
	return fmt.Sprintf("policy {\n default = \"allow\"\n %s}\nrisk {\n %s}\napprove {\n %s}\n", &policy, &risk, &approve)
}

// measureDecision measures one verdict, in this process.
func measureDecision(b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "g")
	if err != nil {
		return err
	}
	conf := filepath.Join(dir, "airlock.hcl")
	text := strings.Replace(hostConfig(dir, b.bin, "http://127.0.0.1:1", ""), "policy {\n    default = \"allow\"\n  }", manyRules(), 1)
	err = errors.Join(os.WriteFile(conf, []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "operator.token"), []byte(strings.Repeat("k3y-", 10)), 0o600))
	if err != nil {
		return err
	}
	cfg, diags := config.Load(conf, config.Options{})
	if diags.HasErrors() {
		return fmt.Errorf("configuration: %w", diags)
	}
	rules, diags := gate.Compile(cfg.Governance)
	if diags.HasErrors() {
		return fmt.Errorf("rules: %w", diags)
	}
	in := gate.Input{Tool: "Bash", Args: json.RawMessage(`{"command":"go test ./...","timeout":120000}`), Now: time.Now()}
	samples := make([]float64, 0, 20000)
	for range b.rounds(20000, 2000) {
		began := time.Now()
		v := rules.Evaluate(in)
		samples = append(samples, float64(time.Since(began).Nanoseconds())/1000)
		if !v.Outcome.Runs() {
			return fmt.Errorf("the verdict is %s: %s", v.Outcome, v.Reason)
		}
	}
	b.emit("decision_p50_us", "us", median(samples), 0, len(samples), spread(samples))
	return nil
}

// measureReserve measures a harness's way to the right to run a call: proposal,
// durable decision, durable reservation, over HTTP. Baseline: two requests to a
// route of the same host that does nothing.
func measureReserve(b *bench) error {
	r, err := startedRig(b, agentBlock("agent-01", 1, 100, ""))
	if err != nil {
		return err
	}
	defer r.clean()
	var task struct {
		Token string `json:"token"`
	}
	if err := r.call(b.ctx, "POST", "/tasks", map[string]any{"task_id": "bench", "objective": "bench"}, &task); err != nil {
		return err
	}
	r.token = task.Token
	args := map[string]any{"amount": 5}
	var samples, bare []float64
	for i := range b.rounds(1500, 150) {
		began := time.Now()
		for range 2 {
			if err := r.call(b.ctx, "GET", "/livez", nil, nil); err != nil {
				return err
			}
		}
		bare = append(bare, ms(time.Since(began)))
		var d struct {
			ID string `json:"decision_id"`
		}
		var x struct {
			ID string `json:"invocation_id"`
		}
		began = time.Now()
		err := r.call(b.ctx, "POST", "/tasks/bench/proposals", map[string]any{"proposal_id": fmt.Sprint(i), "tool_name": "refund", "tool_args": args}, &d)
		if err == nil {
			err = r.call(b.ctx, "POST", "/tasks/bench/dispatches", map[string]any{"decision_id": d.ID, "tool_name": "refund", "tool_args": args}, &x)
		}
		if err != nil {
			return err
		}
		samples = append(samples, ms(time.Since(began)))
		if err := r.call(b.ctx, "POST", "/tasks/bench/dispatches/"+x.ID+"/completion", map[string]any{"outcome": "succeeded"}, nil); err != nil {
			return err
		}
	}
	b.emit("reserve_p50_ms", "ms", median(samples), median(bare), len(samples), spread(samples))
	return nil
}

// measureStop measures from the latch to the proof that nothing is left, by the
// receipts' own times; there is no grace once a cell is frozen.
func measureStop(b *bench) error {
	r, err := startedRig(b, agentBlock("agent-01", 4, 100, ""))
	if err != nil {
		return err
	}
	defer r.clean()
	var samples []float64
	for i := range b.rounds(100, 10) {
		id := fmt.Sprint("stop-", i)
		if err := r.dispatch(id, "trap '' TERM; (setsid sleep 1000 &) ; sleep 1000", "agent-01"); err != nil {
			return err
		}
		if err := until(b.ctx, id+" runs", func() bool {
			var m struct {
				State string `json:"state"`
			}
			return r.call(b.ctx, "GET", "/api/v1/missions/"+id, nil, &m) == nil && m.State == "running"
		}); err != nil {
			return err
		}
		var receipt struct {
			Effective time.Time `json:"effective_at"`
			Isolation struct {
				Result string    `json:"result"`
				At     time.Time `json:"at"`
			} `json:"isolation"`
		}
		if err := r.call(b.ctx, "POST", "/tasks/"+id+"/control?wait=20", map[string]any{"action": "stop"}, &receipt); err != nil {
			return err
		}
		if receipt.Isolation.Result == "unproven" || receipt.Isolation.At.IsZero() {
			return fmt.Errorf("%s has no proof: %+v", id, receipt)
		}
		samples = append(samples, ms(receipt.Isolation.At.Sub(receipt.Effective)))
	}
	b.emit("stop_proof_p99_ms", "ms", percentile(samples, 0.99), 0, len(samples), spread(samples))
	return nil
}
