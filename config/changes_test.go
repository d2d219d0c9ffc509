package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const reloadable = `
name = "h"
isolation "host-supervisor" "host" {}
runtime "command" "shell" {
  config {
    prompts = ["a"]
  }
}
gateway "m" {
  upstream = "https://api.example"
  header "x-api-key" {
    value = secret("file:SECRET")
  }
}
agent "one" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 4
  resources {
    memory = "1GiB"
  }
}
agent "two" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
    rule "r1" {
      tool   = "a"
      effect = "deny"
    }
    rule "r2" {
      tool   = "b"
      when   = args.x > 1
      effect = "deny"
    }
  }
  head {
    file = "/h/heads.jsonl"
  }
}
operator "o" {
  uids = [0]
}
`

func settingsOf(t *testing.T, text string) map[string]Setting {
	t.Helper()
	cfg, diags := Parse([]Source{{Name: "c.hcl", Bytes: []byte(text)}}, Options{Strict: true})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg.Settings()
}

func TestChanges(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	writeSecret := func(text string) {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeSecret("one-canary")
	base := strings.ReplaceAll(reloadable, "SECRET", secret)
	from := settingsOf(t, base)
	for name, test := range map[string]struct {
		old, new string
		want     []string // PATH CHANGE EFFECT
	}{
		"nothing":           {"", "", nil},
		"layout":            {`slots     = 4`, `slots = 4 # as it was`, nil},
		"a default":         {`slots     = 4`, ``, nil},
		"live":              {`slots     = 4`, `slots = 5`, []string{"agent.one.slots changed applied"}},
		"frozen":            {`memory = "1GiB"`, `memory = "2GiB"`, []string{"agent.one.resources.memory changed next_mission"}},
		"restart":           {`name = "h"`, `name = "i"`, []string{"name changed restart_needed"}},
		"head":              {`/h/heads.jsonl`, `/h/other.jsonl`, []string{"governance.head.file changed restart_needed"}},
		"a block went":      {"agent \"two\" {\n  isolation = isolation.host-supervisor.host\n  runtime   = runtime.command.shell\n}", "", []string{"agent.two removed next_mission"}},
		"a block came":      {`operator "o"`, "operator \"p\" {\n uids = [1]\n}\noperator \"o\"", []string{"operator.p added applied"}},
		"order of agents":   {`agent "one"`, `agent "three"`, []string{"agent.one removed next_mission", "agent.three added next_mission"}},
		"order of rules":    {`"r1"`, `"r3"`, []string{"governance.policy.rule.r1 removed applied", "governance.policy.rule.r3 added applied"}},
		"condition":         {`args.x > 1`, `args.x > 2`, []string{"governance.policy.rule.r2.when changed applied"}},
		"the same one":      {`args.x > 1`, `(args.x >  1)`, nil},
		"plugin attribute":  {`["a"]`, `["b"]`, []string{"runtime.command.shell.config.prompts changed applied"}},
		"attribute appears": {`gateway "m" {`, "gateway \"m\" {\n idle_timeout = \"1m\"\n", []string{"gateway.m.idle_timeout added applied"}},
		"default appears":   {`gateway "m" {`, "gateway \"m\" {\n idle_timeout = \"2m\"\n", nil},
	} {
		to := settingsOf(t, strings.Replace(base, test.old, test.new, 1))
		check := func(how string, from map[string]Setting) {
			var got []string
			for _, c := range Changes(from, to) {
				got = append(got, c.Path+" "+c.Change+" "+string(c.Effect))
				if !strings.HasPrefix(c.At, "c.hcl:") {
					t.Errorf("%s: no place: %q", name, c.At)
				}
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("%s, %s: %q, want %q", name, how, got, test.want)
			}
		}
		check("in the host", from)
		if name == "plugin attribute" {
			continue // what a plugin has not described is compared in the host only
		}
		raw, err := json.Marshal(SettingList(from))
		if err != nil || strings.Contains(string(raw), "canary") {
			t.Fatalf("%v %s", err, raw)
		}
		var list []Setting
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		check("from outside", FromHost(list))
	}
	swapped := strings.NewReplacer(`agent "one"`, `agent "two"`, `agent "two"`, `agent "one"`, `slots     = 4`, ``, `resources {`, ``, `memory = "1GiB"`+"\n  }", ``).Replace(base)
	var got []string
	for _, c := range Changes(from, settingsOf(t, swapped)) {
		got = append(got, c.Path)
	}
	if strings.Join(got, " ") != "agent (order) agent.one.resources.memory" {
		t.Errorf("order of agents: %q", got)
	}

	writeSecret("two-canary")
	changes := Changes(from, settingsOf(t, base))
	if len(changes) != 1 || changes[0].Path != "gateway.m.header.x-api-key.value" || changes[0].Note == "" {
		t.Errorf("a rotated secret: %+v", changes)
	}
	if raw, err := json.Marshal(changes); err != nil || strings.Contains(string(raw), "canary") {
		t.Errorf("%v %s", err, raw)
	}
}

func TestKeepHoldsWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	from := settingsOf(t, strings.ReplaceAll(reloadable, `secret("file:SECRET")`, `"v"`))
	to := settingsOf(t, strings.NewReplacer(`secret("file:SECRET")`, `"v"`, `name = "h"`, `name = "i"`, `slots     = 4`, `slots = 9`).Replace(reloadable))
	left := Changes(Keep(from, to), to)
	if len(left) != 1 || left[0].Path != "name" {
		t.Errorf("%+v", left)
	}
}
