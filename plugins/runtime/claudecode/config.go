package main

import (
	"context"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// name and version of the plugin.
const (
	name    = "claude-code"
	version = "0.1.0"
)

// config is an instance's config block.
type config struct {
	Binary             string               `json:"binary"`
	HostBinary         *string              `json:"host_binary"`
	VersionRange       string               `json:"version_range"`
	Model              string               `json:"model"`
	Tools              []string             `json:"tools"`
	Deny               []string             `json:"deny"`
	MaxTurns           int                  `json:"max_turns"`
	MaxBudgetUSD       float64              `json:"max_budget_usd"`
	MaxRetries         int                  `json:"max_retries"`
	AppendSystemPrompt string               `json:"append_system_prompt"`
	Gateway            string               `json:"gateway"`
	MCP                bool                 `json:"mcp"`
	MCPServers         map[string]mcpServer `json:"mcp_servers"`
	Env                map[string]string    `json:"env"`
	ManagedSettings    bool                 `json:"managed_settings"`
	ResumeAfterCrash   bool                 `json:"resume_after_crash"`
	QuestionHold       string               `json:"question_hold"`
	WorkspaceRules     bool                 `json:"workspace_instructions"`
}

// mcpServer is an MCP server that the agent may use: a program in the cell, or
// a URL that can be reached from it.
type mcpServer struct {
	Command *string           `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	URL     *string           `json:"url"`
}

// compiled is a configuration that was found good.
type compiled struct {
	config
	wanted *versionRange // nil: any
	hold   time.Duration
}

// claude is the plugin.
type claude struct {
	plugin.Defaults
	runtime.Unimplemented

	now     func() time.Time
	current atomic.Pointer[compiled] // nil: not configured

	mu       sync.Mutex
	checking context.CancelFunc // of the look at the binary that goes on
	idle     sync.WaitGroup
}

func newPlugin() *claude { return &claude{now: time.Now} }

// Describe says what the plugin is.
func (*claude) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_RUNTIME, Name: name, Version: version,
		Contracts:    []string{plugin.Contract},
		Capabilities: []string{"runtime:claude-code", "hitl", "resumable"},
		Summary:      "Runs missions with the Claude Code CLI. Each of its tool calls is held at two gates of its own protocol until the host has admitted it.",
		Needs: []*pluginv1.Need{
			{What: "workspace_file", Value: instructionsFile, Reason: "with workspace_instructions its text is given to the agent"},
			{What: "cell_dir", Value: path.Dir(managedPath), Reason: "settings of root there make every Claude Code in the cell ask before each call"},
		},
		Schema: schema(),
	}
}

func schema() *pluginv1.ConfigSchema {
	return plugin.Schema(
		plugin.String("binary", "Path of the native Claude Code binary as the cell sees it. Airlock does not bring it along; install it from its vendor.",
			plugin.Default("/usr/local/bin/claude"), plugin.AbsolutePath()),
		plugin.String("host_binary", "Path of the same binary as this machine sees it, for cells whose files are not the machine's (a container, a VM). "+
			"Its version is read and its gates are tried out there before missions are taken. Left out, it is binary.", plugin.AbsolutePath()),
		plugin.String("version_range", `Versions that are taken, for example ">= 2.1.300, < 2.2". Empty takes every version whose gates are found to hold.`,
			plugin.Default("")),
		plugin.String("model", "Model or alias (sonnet, opus, haiku). Empty is the CLI's own choice.", plugin.Default("")),
		plugin.StringList("tools", "Built-in tools that the agent has. Agent lets it use sub-agents, inside of which a call that waits for a human too long is denied.",
			plugin.Default([]string{"Bash", "Read", "Edit", "Write", "Glob", "Grep", "AskUserQuestion"})),
		plugin.StringList("deny", `Permission rules of the CLI that always deny, for example "Read(./secrets/**)". They come on top of the gates and are no boundary of their own.`,
			plugin.Default([]string{"WebFetch", "WebSearch"})),
		plugin.Number("max_turns", "Model calls of one session, at most; 0 is no limit.", plugin.Default(0), plugin.Range(0, 1e6)),
		plugin.Number("max_budget_usd", "Second line behind the gateway's budget, by the CLI's own list prices; 0 is no limit. It is looked at after each model call.",
			plugin.Default(0), plugin.Range(0, 1e6)),
		plugin.Number("max_retries", "How often the CLI tries a model call again.", plugin.Default(10), plugin.Range(0, 100)),
		plugin.String("append_system_prompt", "Text that is added to the system prompt, after the rules, the completion criteria and the intent of the mission.",
			plugin.Default("")),
		plugin.String("gateway", "Name of the gateway block through which the model API is reached.", plugin.Default("anthropic"),
			plugin.Pattern(`^[a-z][a-z0-9_-]{0,62}$`)),
		plugin.Bool("mcp", "Give the agent the host's own MCP endpoint, as the server \"airlock\".", plugin.Default(false)),
		plugin.Attribute("mcp_servers", "map(object({command=optional(string), args=optional(list(string)), env=optional(map(string)), url=optional(string)}))",
			"MCP servers that the agent may use, by name: command (with args and env) is a program in the cell, url an address that can be reached from it. "+
				"Servers that the workspace brings along are not started. A tool is known to the gate as mcp__NAME__TOOL, with the provenance mcp:NAME.",
			plugin.Default(map[string]any{})),
		plugin.StringMap("env", "Environment of the CLI, beside what it must have. What its gates, its credential and its directories hang on cannot be set.",
			plugin.Default(map[string]string{})),
		plugin.Bool("managed_settings", "Place settings that belong to root in the cell (/etc/claude-code/managed-settings.json), so that another `claude` that the agent starts asks before every call, too. "+
			"Not done where the workload could change them.", plugin.Default(true)),
		plugin.Bool("workspace_instructions", "Give the agent the text of the workspace's CLAUDE.md, as instructions of the workspace's owner that no rule of the mission gives way to. "+
			"Nothing else of the workspace's configuration is read.", plugin.Default(false)),
		plugin.String("question_hold", "How long the CLI is kept running while a question to a human waits. Afterwards it is ended, and started again in the same session once there is an answer. \"0s\" keeps it running.",
			plugin.Default("10m"), plugin.Duration()),
		plugin.Bool("resume_after_crash", "Go on in the same Claude session when the CLI dies, within the agent's max_resumes.", plugin.Default(true)),
	)
}

// asks says whether the agent can ask a human.
func (c *compiled) asks() bool {
	for _, t := range c.Tools {
		if t == askTool {
			return true
		}
	}
	return false
}

// onHost is the binary as this machine sees it.
func (c *config) onHost() string {
	if c.HostBinary != nil && *c.HostBinary != "" {
		return *c.HostBinary
	}
	return c.Binary
}

// mcpName is the name of the host's own MCP endpoint.
const mcpName = "airlock"

// servers are the MCP servers that a session has.
func (c *compiled) servers() (names []string) {
	for n := range c.MCPServers {
		names = append(names, n)
	}
	if c.MCP {
		names = append(names, mcpName)
	}
	return names
}

func (c *compiled) session(open *pluginv1.Open) sessionOptions {
	return sessionOptions{prompt: open.GetMission().GetObjective(), servers: c.servers(), resume: c.ResumeAfterCrash, hold: c.hold}
}

// server is the MCP server of a tool; "" for a built-in one. false: it is of a
// server that the session does not have.
func (m *machine) server(tool string) (string, bool) {
	rest, ok := strings.CutPrefix(tool, "mcp__")
	if !ok {
		return "", true
	}
	best := ""
	for _, n := range m.opts.servers {
		if strings.HasPrefix(rest, n+"__") && len(n) > len(best) {
			best = n
		}
	}
	return best, best != ""
}

// Configure takes a configuration, and looks at the binary in the background.
// Sessions that run keep the plan that they were started with.
func (p *claude) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	got, found := compile(req.GetConfigJson())
	for _, d := range found {
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			return plugin.InvalidArgument("%s: %s", d.GetSummary(), d.GetDetail())
		}
	}
	p.current.Store(got)
	p.watch(got, req.GetStateDir(), req.GetRunDir())
	return nil
}

// Validate checks what the schema cannot.
func (*claude) Validate(_ context.Context, data []byte) []*pluginv1.Diagnostic {
	_, found := compile(data)
	return found
}

// Shutdown ends a look at the binary that goes on.
func (p *claude) Shutdown(context.Context) error {
	p.mu.Lock()
	if p.checking != nil {
		p.checking()
	}
	p.mu.Unlock()
	p.idle.Wait()
	return nil
}
