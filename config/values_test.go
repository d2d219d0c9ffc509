package config

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func readTest(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The defaults are those of the surface page.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c := mustParse(t, minimalText)
	if c.Name != "test-host" || c.DataDir != "/var/lib/airlock" || c.RunDir != "/run/airlock" || c.UIDRange != [2]uint32{200000, 265535} || c.OrphanTTL != 24*time.Hour {
		t.Errorf("host: %+v", c)
	}
	if want := (Listen{REST: "127.0.0.1:8122", WS: "127.0.0.1:8121", Advertise: "127.0.0.1"}); c.Listen != want {
		t.Errorf("listen: %+v", c.Listen)
	}
	if c.Orchestrator != nil || c.ExecutorName() != "" {
		t.Errorf("orchestrator without an endpoint: %+v", c.Orchestrator)
	}
	if want := (Plugins{Dir: "/usr/lib/airlock/plugins", Lock: "/etc/airlock/plugins.lock.hcl"}); c.Plugins != want {
		t.Errorf("plugins: %+v", c.Plugins)
	}
	if want := (Telemetry{Prometheus: true}); c.Telemetry != want {
		t.Errorf("telemetry: %+v", c.Telemetry)
	}
	wantGov := Governance{Mode: "govern", OnFailure: "fail_closed", PolicyDefault: "allow", ApprovalTimeout: 15 * time.Minute, ApprovalHold: 10 * time.Minute,
		Restore: "auto", MaxResumes: 3, Head: Head{File: "/var/lib/airlock-heads/heads.jsonl", KeyFile: "/etc/airlock/host.key"}}
	if !reflect.DeepEqual(c.Governance, wantGov) {
		t.Errorf("governance: %+v", c.Governance)
	}
	a := c.Agents[0]
	a.Range = c.Instances[0].Range
	want := Agent{Name: "a", Isolation: "isolation.host-supervisor.host", Runtime: "runtime.command.shell", Slots: 4, Queue: 100, Network: Network{Mode: "none"},
		Workspace: Workspace{Mode: "empty"}, Restore: "auto", MaxResumes: 3, Checkpoint: "off", ApprovalTimeout: 15 * time.Minute, ApprovalHold: 10 * time.Minute, Range: a.Range}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("agent:\n got %+v\nwant %+v", a, want)
	}
	if o := c.Operators[0]; o.Role != "operator" || !reflect.DeepEqual(o.UIDs, []uint32{1000}) {
		t.Errorf("operator: %+v", o)
	}
}

// The example of the surface page is the language, in full.
func TestSurfaceExample(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(readTest(t, "testdata/surface.hcl"), "file:/etc/airlock/anthropic.key", "file:/secret")
	c := mustParse(t, text, func(o *Options) {
		o.LookupEnv = func(name string) (string, bool) {
			return map[string]string{"AIWG_SERVE_ENDPOINT": "http://127.0.0.1:7337/"}[name], name == "AIWG_SERVE_ENDPOINT"
		}
	})
	if o := c.Orchestrator; o == nil || o.Endpoint != "http://127.0.0.1:7337" || c.ExecutorName() != "agentic-sandbox-build-box-1" || !o.Sandbox || o.SandboxHITL || !o.MissionsJSON || o.Approvals != "show" {
		t.Errorf("orchestrator: %+v", c.Orchestrator)
	}
	a := c.Agents[0]
	if !reflect.DeepEqual(a.Gateways, []string{"gateway.anthropic"}) || !reflect.DeepEqual(a.Revokers, []string{"revoker.webhook.issuer"}) || a.Checkpoint != "on-suspend" || a.Warm != 1 {
		t.Errorf("agent: %+v", a)
	}
	if want := (Resources{CPU: 2, Memory: 2 << 30, Pids: 512, Disk: 10 << 30}); a.Resources != want {
		t.Errorf("resources: %+v", a.Resources)
	}
	if a.Intent == nil || a.Intent.Goal != "keep the build green" || !reflect.DeepEqual(a.Intent.Constraints, map[string]any{"max_refund": json.Number("500")}) {
		t.Errorf("intent: %+v", a.Intent)
	}
	if want := (Budget{MaxCostMicroUSD: 5e6, MaxTokens: 2e6, Wall: 2 * time.Hour, Idle: 20 * time.Minute}); c.Governance.Budget != want || a.Budget != want {
		t.Errorf("budget: %+v and %+v", c.Governance.Budget, a.Budget)
	}
	if len(c.Instances) != 6 || c.TLS == nil || c.TLS.CertFile != "/etc/airlock/tls.crt" {
		t.Errorf("instances %d, tls %+v", len(c.Instances), c.TLS)
	}
}

func TestAgentOverridesGovernance(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimalText, "  policy {", "  max_resumes = 7\n  budget {\n    wall = \"2h\"\n    idle = \"5m\"\n  }\n  policy {", 1)
	text = strings.Replace(text, "runtime.command.shell\n", "runtime.command.shell\n  governance {\n    restore = \"latched\"\n    max_resumes = 0\n    approval_hold = \"1m\"\n    budget {\n      idle = \"1d\"\n    }\n  }\n", 1)
	c := mustParse(t, text)
	a := c.Agents[0]
	if a.Restore != "latched" || a.MaxResumes != 0 || a.ApprovalHold != time.Minute || a.ApprovalTimeout != 15*time.Minute || a.Budget != (Budget{Wall: 2 * time.Hour, Idle: 24 * time.Hour}) {
		t.Errorf("agent: %+v", a)
	}
	if c.Governance.MaxResumes != 7 || c.Governance.Restore != "auto" {
		t.Errorf("governance: %+v", c.Governance)
	}
}

func TestOrchestratorFromEnvironment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text     string
		env      map[string]string
		endpoint string // empty: no orchestrator
		register string
		bad      string
	}{
		"nothing set":         {},
		"endpoint only":       {env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1"}, endpoint: "http://serve:1", register: "agentic-sandbox-test-host"},
		"both":                {env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1/", "AIWG_SERVE_NAME": "lab"}, endpoint: "http://serve:1", register: "lab-test-host"},
		"empty is off":        {env: map[string]string{"AIWG_SERVE_ENDPOINT": ""}},
		"block wins":          {text: "orchestrator {\n  endpoint = \"https://x/base/\"\n  name = \"n\"\n}\n", env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1", "AIWG_SERVE_NAME": "lab"}, endpoint: "https://x/base", register: "n-test-host"},
		"block without it":    {text: "orchestrator {\n  sandbox = false\n}\n", env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1"}, endpoint: "http://serve:1", register: "agentic-sandbox-test-host"},
		"unset env is off":    {text: "orchestrator {\n  endpoint = env(\"AIWG_SERVE_ENDPOINT\")\n}\n"},
		"empty in block":      {text: "orchestrator {\n  endpoint = \"\"\n}\n", env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1"}},
		"no URL":              {env: map[string]string{"AIWG_SERVE_ENDPOINT": "serve:1"}, bad: "AIWG_SERVE_ENDPOINT is not an http or https URL"},
		"password in the URL": {text: "orchestrator {\n  endpoint = \"http://u:p@x\"\n}\n", bad: "credentials do not belong into a URL"},
		"too long":            {text: "name = \"" + strings.Repeat("h", 120) + "\"\n", env: map[string]string{"AIWG_SERVE_ENDPOINT": "http://serve:1"}, bad: "longer than 128 characters"},
		"long without one":    {text: "name = \"" + strings.Repeat("h", 120) + "\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, diags := parse(t, tc.text+minimalText, func(o *Options) {
				o.LookupEnv = func(n string) (string, bool) { v, ok := tc.env[n]; return v, ok }
			})
			switch {
			case tc.bad != "":
				if !diags.HasErrors() || !strings.Contains(diags.Error(), tc.bad) {
					t.Errorf("got %v, want %q", diags, tc.bad)
				}
			case diags.HasErrors():
				t.Error(diags)
			case tc.endpoint == "" && c.Orchestrator != nil, tc.endpoint != "" && (c.Orchestrator == nil || c.Orchestrator.Endpoint != tc.endpoint || c.ExecutorName() != tc.register):
				t.Errorf("orchestrator %+v, name %q", c.Orchestrator, c.ExecutorName())
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint64{"1B": 1, "2GiB": 2 << 30, "1.5GiB": 3 << 29, "500MB": 500e6, "10 KiB": 10240, "0B": 0, "1048576TiB": 1 << 60} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "2", "2G", "2gib", "-1B", "+1B", "1e3B", "0.3B", "1048577TiB", "99999999999999999999TiB", " 1B", "1B ", "1..2B", "NaNB", "0x10B", "１B"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q is accepted as %d", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{"15m": 15 * time.Minute, "90d": 90 * 24 * time.Hour, "1d12h": 36 * time.Hour, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "15", "0", "0s", "0d", "-1m", "1d-1h", "+1m", "5 minutes", "1w", "9999d", "9223372036854775807ns1h", "1d1d", "d", "1.5d"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q is accepted as %s", in, got)
		}
	}
}

func TestMicroUSD(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"5": 5e6, "0.000001": 1, "19.99": 19990000, "1000000000": 1e15} {
		text := strings.Replace(minimalText, "  policy {", "  budget {\n    max_cost_usd = "+in+"\n  }\n  policy {", 1)
		if c := mustParse(t, text); c.Governance.Budget.MaxCostMicroUSD != want {
			t.Errorf("%s USD are %d", in, c.Governance.Budget.MaxCostMicroUSD)
		}
	}
	for _, in := range []string{"0", "-1", "0.0000001", "1e10"} {
		text := strings.Replace(minimalText, "  policy {", "  budget {\n    max_cost_usd = "+in+"\n  }\n  policy {", 1)
		if _, diags := parse(t, text); !diags.HasErrors() {
			t.Errorf("%s USD are accepted", in)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{{"resst", "rest"}, {"xyz", ""}, {"ws", "ws"}, {"isolation.docker.contaner", "isolation.docker.container"}, {"a", ""}, {strings.Repeat("x", 1000), ""}} {
		if got := nearest(tc.in, []string{"rest", "ws", "isolation.docker.container"}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.in, got, tc.want)
		}
	}
}
