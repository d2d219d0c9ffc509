package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync/atomic"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// name and version of the plugin.
const (
	name    = "command"
	version = "0.1.0"
)

// config is an instance's config block.
type config struct {
	Shell    []string          `json:"shell"`
	Prompts  []string          `json:"prompts"`
	Terminal bool              `json:"terminal"`
	Env      map[string]string `json:"env"`
	Cols     uint32            `json:"cols"`
	Rows     uint32            `json:"rows"`
}

// compiled is a configuration that was found good.
type compiled struct {
	config
	prompts []*regexp.Regexp
}

// command is the plugin.
type command struct {
	plugin.Defaults
	runtime.Unimplemented

	current atomic.Pointer[compiled] // nil: not configured
}

// Describe says what the plugin is.
func (*command) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_RUNTIME, Name: name, Version: version,
		Contracts:    []string{plugin.Contract},
		Capabilities: []string{"runtime:custom:command", "hitl"},
		Summary:      "Runs a mission's objective as a command line. Its calls are not governed one by one; the cell is the only limit.",
		Schema: plugin.Schema(
			plugin.StringList("shell", "Program and arguments to which the objective is added as the last argument.",
				plugin.Default([]string{"/bin/sh", "-c"})),
			plugin.StringList("prompts", "RE2 patterns. When a process is blocked reading its terminal, and the last line "+
				"of the screen matches one, a human is asked.", plugin.Default([]string{})),
			plugin.Bool("terminal", "Run the command in a terminal instead of with pipes.", plugin.Default(true)),
			plugin.StringMap("env", "Environment of the command, beside what every session has.",
				plugin.Default(map[string]string{})),
			plugin.Number("cols", "Columns of the terminal.", plugin.Default(80), plugin.Range(1, 1000)),
			plugin.Number("rows", "Rows of the terminal.", plugin.Default(24), plugin.Range(1, 1000)),
		),
	}
}

// Validate checks what the schema cannot.
func (*command) Validate(_ context.Context, data []byte) []*pluginv1.Diagnostic {
	_, found := compile(data)
	return found
}

// Configure takes a configuration. Sessions that run keep the plan that they
// were started with; new prompts count for them too.
func (c *command) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	got, found := compile(req.GetConfigJson())
	for _, d := range found {
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			return plugin.InvalidArgument("%s: %s", d.GetSummary(), d.GetDetail())
		}
	}
	c.current.Store(got)
	return nil
}

// compile reads a configuration and says what is wrong with it.
func compile(data []byte) (*compiled, []*pluginv1.Diagnostic) {
	c := &compiled{}
	if err := plugin.DecodeConfig(data, &c.config); err != nil {
		return nil, []*pluginv1.Diagnostic{plugin.Problem(nil, "The block cannot be read", err.Error())}
	}
	var found []*pluginv1.Diagnostic
	problem := func(path []*pluginv1.PathStep, summary, detail string) {
		found = append(found, plugin.Problem(path, summary, detail))
	}
	if len(c.Shell) == 0 || c.Shell[0] == "" {
		problem(plugin.Path("shell"), "No program", `The first element is the program, for example ["/bin/sh", "-c"].`)
	}
	for i, s := range c.Shell {
		if strings.IndexByte(s, 0) >= 0 {
			problem(plugin.Path("shell", i), "A NUL byte", "An argument cannot hold one.")
		}
	}
	for i, p := range c.Prompts {
		re, err := regexp.Compile(p)
		switch {
		case err != nil:
			problem(plugin.Path("prompts", i), "Not an RE2 pattern", why(err))
		case p == "" || re.MatchString(""):
			problem(plugin.Path("prompts", i), "Matches an empty line",
				"Every blocked read would become a question, also one that expects no human. Name what the prompt looks like.")
		default:
			c.prompts = append(c.prompts, re)
		}
	}
	if len(c.Prompts) > 0 && !c.Terminal {
		problem(plugin.Path("prompts"), "Prompts need a terminal",
			"With terminal = false it cannot be seen that a process waits for input. Leave prompts out, or set terminal = true.")
	}
	for _, k := range slices.Sorted(maps.Keys(c.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(c.Env[k], 0) >= 0 {
			problem(plugin.Path("env", plugin.MapKey(k)), "Not an environment variable",
				"A name is not empty and has no =; neither name nor value has a NUL byte.")
		}
	}
	return c, found
}

// why is a pattern's error without the pattern, which the operator sees anyway.
func why(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Sprintf("%s: %s", e.Code, e.Expr)
	}
	return err.Error()
}
