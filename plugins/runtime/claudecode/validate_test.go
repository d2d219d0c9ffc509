package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func at(path []*pluginv1.PathStep) string {
	var b strings.Builder
	for _, s := range path {
		switch x := s.GetStep().(type) {
		case *pluginv1.PathStep_Attribute:
			b.WriteString("." + x.Attribute)
		case *pluginv1.PathStep_Index:
			fmt.Fprintf(&b, "[%d]", x.Index)
		case *pluginv1.PathStep_Key:
			fmt.Fprintf(&b, "[%q]", x.Key)
		}
	}
	return b.String()
}

func TestEachMistakeIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	server := func(v map[string]any) map[string]any { return map[string]any{"db": v} }
	for _, c := range []struct {
		name, attribute string
		value           any
		where, what     string
	}{
		{"a rule as a tool", "tools", []string{"Read", "Bash(git *)"}, ".tools[1]", "Not the name of a tool"},
		{"a tool twice", "tools", []string{"Bash", "Bash"}, ".tools[1]", "Twice"},
		{"a tool that lingers", "tools", []string{"ScheduleWakeup"}, ".tools[0]", "outlives"},
		{"given and denied", "tools", []string{"WebFetch"}, ".tools[0]", "Given and denied"},
		{"no tools", "tools", []string{}, ".tools", "No tools"},
		{"an empty rule", "deny", []string{" "}, ".deny[0]", "Not a permission rule"},
		{"a flag as a model", "model", "--dangerously-skip-permissions", ".model", "Not a model"},
		{"a long text", "append_system_prompt", strings.Repeat("x", maxAppend+1), ".append_system_prompt", "Too long"},
		{"no range", "version_range", "about 2", ".version_range", "Not a range"},
		{"no duration", "question_hold", "soon", ".question_hold", "Not a duration"},
		{"a server's name", "mcp_servers", map[string]any{"a__b": map[string]any{"command": "x"}}, `.mcp_servers["a__b"]`, "Not the name"},
		{"the host's name", "mcp_servers", map[string]any{"airlock": map[string]any{"command": "x"}}, `.mcp_servers["airlock"]`, "taken"},
		{"neither", "mcp_servers", server(map[string]any{}), `.mcp_servers["db"]`, "Neither or both"},
		{"both", "mcp_servers", server(map[string]any{"command": "x", "url": "http://x"}), `.mcp_servers["db"]`, "Neither or both"},
		{"arguments of a url", "mcp_servers", server(map[string]any{"url": "http://x", "args": []string{"a"}}), `.mcp_servers["db"]`, "Not for a url"},
		{"a password", "mcp_servers", server(map[string]any{"url": "http://a:b@x"}), `.mcp_servers["db"].url`, "Not a URL"},
		{"the key", "env", map[string]any{"ANTHROPIC_API_KEY": "sk"}, `.env["ANTHROPIC_API_KEY"]`, "Cannot be set"},
		{"another credential", "env", map[string]any{"ANTHROPIC_AUTH_TOKEN": "sk"}, `.env["ANTHROPIC_AUTH_TOKEN"]`, "Cannot be set"},
		{"the directory", "env", map[string]any{"CLAUDE_CONFIG_DIR": "/"}, `.env["CLAUDE_CONFIG_DIR"]`, "Cannot be set"},
		{"ours", "env", map[string]any{"AIRLOCK_RESUME": "{}"}, `.env["AIRLOCK_RESUME"]`, "Cannot be set"},
		{"no name", "env", map[string]any{"A=B": "x"}, `.env["A=B"]`, "Not an environment variable"},
		{"another type", "tools", "Bash", ".tools", "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := defaults(t)
			cfg[c.attribute] = c.value
			data, err := json.Marshal(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, found := compile(data)
			if len(found) != 1 || at(found[0].GetPath()) != c.where || !strings.Contains(found[0].GetSummary(), c.what) {
				t.Errorf("found %v", found)
			}
		})
	}
	data, err := json.Marshal(defaults(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, found := compile(data); len(found) > 0 {
		t.Errorf("the defaults: %v", found)
	}
}

func TestVersionRanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span, version string
		has           bool
	}{
		{">= 2.1.300, < 2.2", "2.1.332", true}, {">= 2.1.300, < 2.2", "2.2.0", false}, {">= 2.1.300, < 2.2", "2.1.299", false},
		{"2.1.332", "2.1.332", true}, {"= 2.1.332", "2.1.333", false}, {"!= 2.1.330", "2.1.330", false}, {"> 2", "2.0.1", true}, {"<= 2.1", "2.1.0", true},
	} {
		r, err := parseRange(c.span)
		if err != nil {
			t.Fatal(err)
		}
		v, err := parseRelease(c.version)
		if err != nil || r.has(v) != c.has {
			t.Errorf("%s has %s: %v, %v", c.span, c.version, !c.has, err)
		}
	}
	for _, bad := range []string{"", ",", "about 2", ">= two", ">= 1.2.3.4", "=> 1", ">= 2.1 < 3"} {
		if _, err := parseRange(bad); err == nil {
			t.Errorf("%q is a range", bad)
		}
	}
}

func TestInputsAreComparedByWhatTheySay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [ true , null , "\u0078" ], "a" : 1.0 }`, true},
		{`1e3`, `1000`, true}, {`-0`, `0`, true}, {`0.10`, `1E-1`, true}, {`12300`, `1.23e4`, true},
		{`1`, `"1"`, false}, {`1`, `-1`, false}, {`null`, `false`, false}, {`[1,2]`, `[2,1]`, false}, {`[]`, `{}`, false}, {`["a","b"]`, `["ab"]`, false},
		{`{"a":"b"}`, `{"a":"b","c":null}`, false}, {`9007199254740993`, `9007199254740992`, false}, {`1e999999999999`, `1e99999999999`, false},
	} {
		a, errA := inputDigest([]byte(c.a))
		b, errB := inputDigest([]byte(c.b))
		if errA != nil || errB != nil || (a == b) != c.same {
			t.Errorf("%s and %s: same %v, %v %v", c.a, c.b, a == b, errA, errB)
		}
	}
	for _, bad := range []string{``, `{`, `{} {}`, `x`} {
		if _, err := inputDigest([]byte(bad)); err == nil {
			t.Errorf("%q has a digest", bad)
		}
	}
}
