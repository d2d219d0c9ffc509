package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

var (
	toolName   = regexp.MustCompile(`^[A-Z][A-Za-z]{0,63}$`)
	serverName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,40}[A-Za-z0-9])?$`)
	modelName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,199}$`)
)

// lingering tools keep the CLI alive when its input has ended.
var lingering = []string{"CronCreate", "CronDelete", "CronList", "ScheduleWakeup"}

// compile reads a configuration and says what is wrong with it.
func compile(data []byte) (*compiled, []*pluginv1.Diagnostic) {
	c := &compiled{}
	if err := plugin.DecodeConfig(data, &c.config); err != nil {
		return nil, []*pluginv1.Diagnostic{plugin.Problem(unreadableAt(data), "The block cannot be read", err.Error())}
	}
	v := &checker{c: c}
	v.tools()
	v.texts()
	v.servers()
	v.environment()
	if d, err := time.ParseDuration(c.QuestionHold); err != nil || d < 0 {
		v.problem(plugin.Path("question_hold"), "Not a duration", `It is like "10m", or "0s".`)
	} else {
		c.hold = d
	}
	if c.VersionRange != "" {
		r, err := parseRange(c.VersionRange)
		if err != nil {
			v.problem(plugin.Path("version_range"), "Not a range of versions", err.Error())
		}
		c.wanted = r
	}
	return c, v.found
}

// unreadableAt finds the attribute whose value is of another type.
func unreadableAt(data []byte) []*pluginv1.PathStep {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(data, &all) // then no attribute is found
	for _, k := range slices.Sorted(maps.Keys(all)) {
		one, _ := json.Marshal(map[string]json.RawMessage{k: all[k]}) // was JSON before
		if plugin.DecodeConfig(one, &config{}) != nil {
			return plugin.Path(k)
		}
	}
	return nil
}

type checker struct {
	c     *compiled
	found []*pluginv1.Diagnostic
}

func (v *checker) problem(path []*pluginv1.PathStep, summary, detail string) {
	v.found = append(v.found, plugin.Problem(path, summary, detail))
}

func (v *checker) tools() {
	c := v.c
	seen := map[string]bool{}
	for i, t := range c.Tools {
		at := plugin.Path("tools", i)
		switch {
		case !toolName.MatchString(t):
			v.problem(at, "Not the name of a tool", fmt.Sprintf("%q is none of the built-in tools' names, which are like Bash or AskUserQuestion. Rules such as Bash(git *) belong into deny or into the gate's policy.", t))
		case slices.Contains(lingering, t):
			v.problem(at, "A tool that outlives the mission", fmt.Sprintf("%s makes Claude Code go on after its work is done. Leave it out.", t))
		case slices.Contains(c.Deny, t):
			v.problem(at, "Given and denied", fmt.Sprintf("%s is in deny, too: the agent would see a tool that it can never use. Take it out of one of the two.", t))
		case seen[t]:
			v.problem(at, "Twice", fmt.Sprintf("%s is in the list already.", t))
		}
		seen[t] = true
	}
	for i, d := range c.Deny {
		if strings.TrimSpace(d) == "" || strings.ContainsAny(d, "\x00\n") {
			v.problem(plugin.Path("deny", i), "Not a permission rule", `A rule is a tool, possibly with what it is about, for example "Bash(curl *)".`)
		}
	}
	if len(c.Tools) == 0 && len(c.servers()) == 0 {
		v.problem(plugin.Path("tools"), "No tools", "The agent could do nothing but talk. Name at least one tool, or an MCP server.")
	}
}

func (v *checker) texts() {
	c := v.c
	if c.Model != "" && !modelName.MatchString(c.Model) {
		v.problem(plugin.Path("model"), "Not a model", `A model is an alias such as "sonnet" or an id such as "claude-sonnet-5-5".`)
	}
	if strings.IndexByte(c.AppendSystemPrompt, 0) >= 0 {
		v.problem(plugin.Path("append_system_prompt"), "A NUL byte", "An argument cannot hold one.")
	}
	if n := len(c.AppendSystemPrompt); n > maxAppend {
		v.problem(plugin.Path("append_system_prompt"), "Too long", fmt.Sprintf("It has %d bytes; at most %d can be given on a command line. Put the rest into a file of the workspace and name it here.", n, maxAppend))
	}
}

func (v *checker) servers() {
	for _, n := range slices.Sorted(maps.Keys(v.c.MCPServers)) {
		s, at := v.c.MCPServers[n], plugin.Path("mcp_servers", plugin.MapKey(n))
		command, address := s.Command != nil && *s.Command != "", s.URL != nil && *s.URL != ""
		switch {
		case !serverName.MatchString(n) || strings.Contains(n, "__"):
			v.problem(at, "Not the name of a server", "A name has letters, digits, - and _, and no two _ in a row: its tools are called mcp__NAME__TOOL.")
		case n == mcpName:
			v.problem(at, "The name is taken", "airlock is the host's own endpoint, see mcp. Call this one something else.")
		case command == address:
			v.problem(at, "Neither or both", "A server has a command or a url.")
		case command && strings.Contains(*s.Command+strings.Join(s.Args, ""), "\x00"):
			v.problem(at, "A NUL byte", "An argument cannot hold one.")
		case address && (len(s.Args) > 0 || len(s.Env) > 0):
			v.problem(at, "Not for a url", "args and env belong to a command.")
		case address:
			if u, err := url.Parse(*s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
				v.problem(append(at, plugin.Path("url")...), "Not a URL", "It is http:// or https://, with a host and without credentials, which have no place in a cell.")
			}
		}
	}
}

func (v *checker) environment() {
	fixed := fixedEnv("", nil)
	for _, k := range slices.Sorted(maps.Keys(v.c.Env)) {
		at := plugin.Path("env", plugin.MapKey(k))
		_, own := fixed[k]
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v.c.Env[k], 0) >= 0:
			v.problem(at, "Not an environment variable", "A name is not empty and has no =; neither name nor value has a NUL byte.")
		case own || slices.Contains(reserved, k) || strings.HasPrefix(k, "AIRLOCK_"):
			v.problem(at, "Cannot be set", fmt.Sprintf("%s is what the gates, the credential or the directories of the session hang on; Airlock sets it, or keeps it unset.", k))
		}
	}
}
