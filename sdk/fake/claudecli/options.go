package claudecli

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// Options of a run of the CLI.
type Options struct {
	Binary string // see Find
	Dir    string // working directory; the CLI's own files go to Home
	Home   string // a directory for its config and temporary files
	URL    string // base URL of the API
	Socket string // unix socket to reach it through; empty: by TCP
	Key    string // what it sends as its API key
	// Session is a UUID; Resume says that it exists already.
	Session string
	Resume  bool
	Tools   []string // nil: Bash, Read, Edit, Write, AskUserQuestion
	Args    []string // more arguments
	Env     []string // more environment, NAME=VALUE
	// Decide answers a gate; nil, or a nil answer, allows.
	Decide func(Ask) any
}

// Ask is one question of the CLI to its host.
type Ask struct {
	Gate   string          // "hook" (PreToolUse), "prompt" (can_use_tool) or "after" (PostToolUse)
	Tool   string          // its name
	ID     string          // tool_use_id
	Agent  string          // agent_id of a sub-agent
	Input  json.RawMessage // of the call
	Answer json.RawMessage // tool_response, at "after"
}

func (o *Options) args() []string {
	tools := o.Tools
	if tools == nil {
		tools = []string{"Bash", "Read", "Edit", "Write", "AskUserQuestion"}
	}
	args := []string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--permission-mode", "default", "--permission-prompt-tool", "stdio", "--setting-sources", "", "--strict-mcp-config",
		"--settings", `{"permissions":{"ask":["*"],"deny":["WebFetch","WebSearch"]}}`, "--tools", strings.Join(tools, ",")}
	switch {
	case o.Resume:
		args = append(args, "--resume", o.Session)
	case o.Session != "":
		args = append(args, "--session-id", o.Session)
	}
	return append(args, o.Args...)
}

// env is the whole environment: nothing of the caller's is passed on.
func (o *Options) env() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + o.Home,
		"CLAUDE_CONFIG_DIR=" + filepath.Join(o.Home, "config"), "CLAUDE_CODE_TMPDIR=" + o.Home,
		"ANTHROPIC_BASE_URL=" + o.URL, "ANTHROPIC_API_KEY=" + o.Key,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
		"CLAUDE_CODE_DISABLE_CRON=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1",
	}
	if o.Socket != "" {
		env = append(env, "ANTHROPIC_UNIX_SOCKET="+o.Socket)
	}
	return append(env, o.Env...)
}
