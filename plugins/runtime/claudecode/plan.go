package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/google/uuid"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// sessions is the space of the ids of Claude's sessions.
var sessions = uuid.MustParse("0b5c3b1e-6e0e-5d5a-9a44-1c5d8a1f7c11")

const (
	// maxAppend and maxArgument keep an argument below what Linux takes (128 KiB).
	maxAppend   = 64 << 10
	maxArgument = 120 << 10

	managedPath = "/etc/claude-code/managed-settings.json"
	// placeholder is what the CLI sends as its key. It opens nothing: the
	// gateway knows its caller by the cell, and puts the real key in its place.
	placeholder = "airlock-placeholder-this-is-no-key"
)

// reserved variables would get around a gate, or around the gateway.
var reserved = []string{"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR", "CLAUDE_CODE_OAUTH_TOKEN",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_RESUME_INTERRUPTED_TURN",
	"CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "CLAUDE_CODE_MAX_RETRIES", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NODE_OPTIONS",
	"BUN_OPTIONS", "IS_SANDBOX"}

// Plan says how to start the CLI: both gates, no settings of the workspace, an
// explicit list of tools, directories of the mission's own.
func (p *claude) Plan(_ context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	c := p.current.Load()
	if c == nil {
		return nil, plugin.FailedPrecondition("the instance is not configured yet")
	}
	m := req.GetMission()
	if strings.TrimSpace(m.GetObjective()) == "" {
		return nil, plugin.InvalidArgument("the objective is empty: there is nothing to do")
	}
	session, carried, err := c.sessionArgs(m.GetMissionId(), req.GetResume())
	if err != nil {
		return nil, plugin.InvalidArgument("the session cannot be gone on with: %v", err)
	}
	system := systemPrompt(req, c)
	switch {
	case strings.IndexByte(system, 0) >= 0:
		return nil, plugin.InvalidArgument("the completion criteria or the intent have a NUL byte, which an argument cannot have")
	case len(system) > maxArgument:
		return nil, plugin.InvalidArgument("completion criteria, intent, append_system_prompt and the workspace's CLAUDE.md (workspace_instructions) have %d bytes together; a command line takes %d. Put the rest into a file of the workspace and name it", len(system), maxArgument)
	}
	plan := &pluginv1.LaunchPlan{
		Argv: c.argv(session, system), Env: fixedEnv(c.Gateway, c.Env),
		Boundary: pluginv1.Boundary_BOUNDARY_PROTOCOL,
		Output:   pluginv1.OutputNeed_OUTPUT_NEED_LINES,
		OnFull:   pluginv1.OnFull_ON_FULL_BLOCK,
		Gateways: []string{c.Gateway},
	}
	plan.Env["CLAUDE_CODE_MAX_RETRIES"] = strconv.Itoa(c.MaxRetries)
	if carried != "" {
		plan.Env[resumeEnv] = carried
	}
	if cell := req.GetCell(); c.ManagedSettings && cell.GetUid() != 0 && cell.GetLink() == pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED {
		plan.Files = append(plan.Files, &pluginv1.PlanFile{Path: managedPath, Content: c.settings(true), Mode: 0o644, RootOwned: true})
	}
	return &pluginv1.PlanResponse{Plan: plan}, nil
}

// argv is the command line of every session, that of the canaries too.
func (c *compiled) argv(session []string, system string) []string {
	// Without --await-initialize a resumed session asks again for a call that it
	// let go before it has read which hooks there are, and passes the first gate by.
	argv := []string{c.Binary, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--await-initialize"}
	argv = append(argv, session...)
	argv = append(argv, "--permission-mode", "default", "--permission-prompt-tool", "stdio",
		"--setting-sources", "", "--strict-mcp-config", "--settings", string(c.settings(false)), "--tools", strings.Join(c.Tools, ","))
	if mcp := c.mcpConfig(); mcp != "" {
		argv = append(argv, "--mcp-config", mcp)
	}
	argv = append(argv, "--append-system-prompt", system)
	if c.Model != "" {
		argv = append(argv, "--model", c.Model)
	}
	if c.MaxTurns > 0 {
		argv = append(argv, "--max-turns", strconv.Itoa(c.MaxTurns))
	}
	if c.MaxBudgetUSD > 0 {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(c.MaxBudgetUSD, 'f', -1, 64))
	}
	return argv
}

// resumeEnv carries what Run must know of earlier sessions, in the one thing
// that the host keeps of a plan for it. It holds no secret: the workload sees it.
const resumeEnv = "AIRLOCK_RESUME"

// sessionArgs names Claude's session: a new one for a new mission, and the
// same one for as long as it is there; and what is carried over from it.
func (c *compiled) sessionArgs(mission string, resume *pluginv1.ResumePoint) (args []string, carried string, err error) {
	first := uuid.NewSHA1(sessions, []byte(mission)).String()
	if resume == nil {
		return []string{"--session-id", first}, "", nil
	}
	s, err := readState(resume.GetState())
	switch {
	case err != nil:
		return nil, "", err
	case s == nil:
		s = &state{Session: first}
	case uuid.Validate(s.Session) != nil:
		return nil, "", fmt.Errorf("the stored state names the session %.40q, which is no UUID", s.Session)
	}
	next := s.next(resume.GetOpenCalls())
	next.Notice = c.noticeOf(resume, next.After)
	b, err := json.Marshal(next)
	if err != nil {
		return nil, "", err
	}
	if s.After == afterLost {
		return []string{"--session-id", uuid.NewSHA1(sessions, []byte(mission+"\x00"+s.Session)).String()}, string(b), nil
	}
	return []string{"--resume", s.Session}, string(b), nil
}

// sessionOf finds the session in the arguments of a plan.
func sessionOf(argv []string) (session string, resumed bool, err error) {
	for i := 1; i < len(argv); i++ {
		switch argv[i-1] {
		case "--session-id":
			return argv[i], false, nil
		case "--resume":
			return argv[i], true, nil
		}
	}
	return "", false, errors.New("the plan of the session is not one of this plugin: it names no session of Claude Code")
}

// settings are the CLI's: each call asks. Those that belong to root in
// addition take the modes away in which nothing asks.
func (c *compiled) settings(managed bool) []byte {
	deny := c.Deny
	if deny == nil {
		deny = []string{}
	}
	permissions := object{"ask": []string{"*"}, "deny": deny}
	if managed {
		permissions["disableBypassPermissionsMode"] = "disable"
	}
	b, _ := json.Marshal(object{"permissions": permissions}) // strings only
	return b
}

// mcpConfig names the servers that the session has; "" = none. The CLI itself
// expands the variable, which the cell agent sets.
func (c *compiled) mcpConfig() string {
	servers := object{}
	for n, s := range c.MCPServers {
		if s.URL != nil && *s.URL != "" {
			servers[n] = object{"type": "http", "url": *s.URL}
			continue
		}
		one := object{"type": "stdio", "command": *s.Command}
		if len(s.Args) > 0 {
			one["args"] = s.Args
		}
		if len(s.Env) > 0 {
			one["env"] = s.Env
		}
		servers[n] = one
	}
	if c.MCP {
		servers[mcpName] = object{"type": "http", "url": "${AIRLOCK_MCP_URL}"}
	}
	if len(servers) == 0 {
		return ""
	}
	b, _ := json.Marshal(object{"mcpServers": servers}) // strings only
	return string(b)
}

// fixedEnv is the environment of a session, on top of the operator's.
func fixedEnv(gateway string, own map[string]string) map[string]string {
	env := maps.Clone(own)
	if env == nil {
		env = map[string]string{}
	}
	word := strings.ToUpper(strings.ReplaceAll(gateway, "-", "_"))
	maps.Copy(env, map[string]string{
		"ANTHROPIC_BASE_URL":    "http://anything", // what counts is the socket
		"ANTHROPIC_UNIX_SOCKET": "${AIRLOCK_GATEWAY_" + word + "_SOCKET}",
		"ANTHROPIC_API_KEY":     placeholder,
		"HOME":                  "${AIRLOCK_STATE}",
		"CLAUDE_CONFIG_DIR":     "${AIRLOCK_STATE}/claude",
		"CLAUDE_CODE_TMPDIR":    "${AIRLOCK_TMP}",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"DISABLE_AUTOUPDATER":                      "1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS":     "1",
		"CLAUDE_CODE_DISABLE_CRON":                 "1",
		"CLAUDE_CODE_STARTUP_FAILURE_RESULTS":      "1",
		"CLAUDE_CODE_SDK_READS_SESSION_STATE":      "1",
	})
	return env
}
