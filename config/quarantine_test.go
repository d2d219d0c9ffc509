package config

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// One bad agent or plugin block never stops the host (architecture decision 8),
// and validate says it all the same.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	good := minimalText
	for name, tc := range map[string]struct {
		add      string
		agent    string // the agent that is quarantined; empty: none
		instance string // the instance that is quarantined
		reason   string
	}{
		"unknown reference": {
			add:   "agent \"bad\" {\n  isolation = isolation.docker.nope\n  runtime = runtime.command.shell\n}\n",
			agent: "bad", reason: "There is no block for isolation.docker.nope",
		},
		"unknown attribute": {
			add:   "agent \"bad\" {\n  isolation = isolation.host-supervisor.host\n  runtime = runtime.command.shell\n  slotz = 3\n}\n",
			agent: "bad", reason: `Did you mean "slots"?`,
		},
		"error in a block of the agent": {
			add:   "agent \"bad\" {\n  isolation = isolation.host-supervisor.host\n  runtime = runtime.command.shell\n  resources {\n    memory = 5\n  }\n}\n",
			agent: "bad", reason: "a size needs a unit",
		},
		"bad name": {
			add:   "agent \"" + strings.Repeat("x", 300) + "\" {\n  isolation = isolation.host-supervisor.host\n  runtime = runtime.command.shell\n}\n",
			agent: strings.Repeat("x", 300), reason: "cannot be the name",
		},
		"name given twice": {
			add:   "agent \"a\" {\n  isolation = isolation.host-supervisor.host\n  runtime = runtime.command.shell\n}\n",
			agent: "a", reason: `There is a block agent "a" at test.hcl:4,1 already`,
		},
		"bad instance takes its agents along": {
			add:      "isolation \"docker\" \"c\" {\n  image = \"x\"\n}\nagent \"bad\" {\n  isolation = isolation.docker.c\n  runtime = runtime.command.shell\n}\n",
			agent:    "bad",
			instance: "isolation.docker.c", reason: "has no attribute",
		},
		"unknown function in a config block": {
			add:      "revoker \"webhook\" \"w\" {\n  config {\n    key = file(\"/etc/passwd\")\n  }\n}\n",
			instance: "revoker.webhook.w", reason: "There is no function file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, diags := parse(t, good+tc.add, lenient)
			if diags.HasErrors() {
				t.Fatalf("the host does not start: %v", diags)
			}
			if len(diags) == 0 || diags[0].Severity != hcl.DiagWarning || !strings.Contains(diags[0].Summary, "is not used") {
				t.Fatalf("no warning says it: %v", diags)
			}
			for _, a := range cfg.Agents {
				if bad := a.Name == tc.agent; bad != (a.Invalid != "") {
					t.Errorf("agent %s: invalid = %q", a.Name, a.Invalid)
				} else if bad && !strings.Contains(a.Invalid, tc.reason) {
					t.Errorf("agent %s: reason %q does not say %q", a.Name, a.Invalid, tc.reason)
				} else if bad && !strings.Contains(a.Invalid, "test.hcl:") {
					t.Errorf("agent %s: reason %q has no place", a.Name, a.Invalid)
				}
			}
			for _, i := range cfg.Instances {
				if bad := i.Ref() == tc.instance; bad != (i.Invalid != "") {
					t.Errorf("%s: invalid = %q", i.Ref(), i.Invalid)
				}
			}
			if _, diags := parse(t, good+tc.add); !diags.HasErrors() {
				t.Error("validate accepts it")
			}
		})
	}
}

func TestErrorsOutsideOfAgentsFailTheWhole(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]string{
		"unknown block":          "foo {}\n",
		"unknown attribute":      "foo = 1\n",
		"syntax":                 "agent \"x\" {\n",
		"rule in governance":     "retention {\n  states = [\"running\"]\n}\n",
		"listener":               "listen {\n  rest = \"0.0.0.0:1\"\n}\n",
		"operator without token": "operator \"x\" {\n  token_file = \"/missing\"\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if cfg, diags := parse(t, minimalText+add, lenient); cfg != nil || !diags.HasErrors() {
				t.Errorf("accepted: %v", diags)
			}
		})
	}
}

// Nothing in the language is refused for not being enforced.
func TestWhatIsKnownIsTaken(t *testing.T) {
	t.Parallel()
	if _, diags := parse(t, readTest(t, "testdata/taken.hcl")); diags.HasErrors() {
		t.Error(diags)
	}
}
