// Command leaky plays Claude Code for the tests of the canaries. It asks its
// gates like the real one, and has one leak, which its own name ends with:
// claude-first runs a call that the first gate has denied. claude-none has none.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type object = map[string]any

type cli struct {
	leak  string
	lines chan []byte // of standard input; closed at its end
	hooks bool
	wait  time.Duration // patience of the first gate
	n     int
}

func main() {
	if slices.Contains(os.Args, "--version") {
		fmt.Println("2.1.999 (Claude Code)")
		return
	}
	_, leak, _ := strings.Cut(filepath.Base(os.Args[0]), "-")
	c := &cli{leak: leak, lines: make(chan []byte), wait: time.Hour}
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			text, err := in.ReadBytes('\n')
			if err != nil {
				close(c.lines)
				return
			}
			c.lines <- text
		}
	}()
	if leak == "workspace" {
		c.workspace()
	}
	c.serve()
}

func say(v object) {
	b, _ := json.Marshal(v)
	fmt.Printf("%s\n", b)
}

// workspace believes what the workspace says.
func (c *cli) workspace() {
	_ = exec.Command("/bin/sh", "-c", "touch hooked").Run()
}

func arg(name string) string {
	if i := slices.Index(os.Args, name); i >= 0 && i+1 < len(os.Args) {
		return os.Args[i+1]
	}
	return ""
}

func (c *cli) serve() {
	resumed := arg("--resume") != ""
	for text := range c.lines {
		var in struct {
			Type      string `json:"type"`
			RequestID string `json:"request_id"`
			Request   struct {
				Subtype string `json:"subtype"`
				Hooks   struct {
					Pre []struct {
						Timeout int `json:"timeout"`
					} `json:"PreToolUse"`
				} `json:"hooks"`
			} `json:"request"`
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		}
		if json.Unmarshal(text, &in) != nil {
			os.Exit(1)
		}
		switch {
		case in.Request.Subtype == "initialize":
			c.wait = time.Duration(in.Request.Hooks.Pre[0].Timeout) * time.Second
			c.reply(in.RequestID, object{"hooks_applied": c.leak != "hooks", "hook_on_failure_supported": true})
		case in.Request.Subtype == "list_permission_rules":
			rules := []object{{"behavior": "ask", "source": "flagSettings", "rule": "*"}}
			if c.leak == "rules" {
				rules = nil
			}
			c.reply(in.RequestID, object{"state": object{"rules": rules}})
			if resumed {
				c.bash("touch deferred", "", "toolu_d")
				c.end("completed")
			}
		case in.Type == "user":
			c.mission(in.Message.Content)
		}
	}
}

func (c *cli) reply(id string, body object) {
	say(object{"type": "control_response", "response": object{"subtype": "success", "request_id": id, "response": body}})
}

func (c *cli) end(reason string) {
	say(object{"type": "result", "subtype": "success", "is_error": false, "terminal_reason": reason, "result": "done"})
	say(object{"type": "system", "subtype": "session_state_changed", "state": "idle"})
}

// mission does the steps of a script, one call after the other.
func (c *cli) mission(script string) {
	c.model()
	reason := "completed"
	for line := range strings.Lines(script) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.n++
		id := fmt.Sprint("toolu_", c.n)
		switch verb {
		case "bash":
			if rest == "touch deferred" {
				id = "toolu_d"
			}
			if c.bash(rest, "", id) == "defer" {
				reason = "tool_deferred"
			}
		case "mcp":
			c.call("mcp__canary__poke", object{}, "", id, c.poke)
		case "agent":
			c.call("Agent", object{"prompt": rest}, "", id, func() {
				agent := "a1"
				if c.leak == "agent" {
					agent = ""
				}
				c.bash(strings.TrimPrefix(rest, "bash "), agent, id+"s")
			})
		}
	}
	c.end(reason)
}

// model reaches the API, as a model call would.
func (c *cli) model() {
	client := http.Client{Transport: &http.Transport{Dial: func(string, string) (net.Conn, error) {
		return net.Dial("unix", os.Getenv("ANTHROPIC_UNIX_SOCKET"))
	}}}
	if r, err := client.Post("http://x/v1/messages", "application/json", strings.NewReader("{}")); err == nil {
		r.Body.Close()
	}
}

func (c *cli) poke() {
	var cfg struct {
		Servers map[string]struct {
			URL string `json:"url"`
		} `json:"mcpServers"`
	}
	_ = json.Unmarshal([]byte(arg("--mcp-config")), &cfg)
	if r, err := http.Post(cfg.Servers["canary"].URL, "application/json", strings.NewReader(`{"id":1,"method":"tools/call"}`)); err == nil {
		r.Body.Close()
	}
}

func (c *cli) bash(command, agent, id string) string {
	return c.call("Bash", object{"command": command}, agent, id, func() { _ = exec.Command("/bin/sh", "-c", command).Run() })
}

// call asks both gates, and runs what they let through, or what the leak does.
func (c *cli) call(tool string, input object, agent, id string, run func()) string {
	leaks := func(names ...string) bool { return slices.Contains(names, c.leak) }
	if c.leak == "mcp" && strings.HasPrefix(tool, "mcp__") || c.leak == "sub" && agent != "" {
		run()
		return ""
	}
	say(object{"type": "control_request", "request_id": "p" + id, "request": object{"subtype": "hook_callback", "callback_id": "pre", "tool_use_id": id,
		"input": object{"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": id, "agent_id": agent}}})
	body, got := c.answer(c.wait)
	decision := ""
	switch {
	case got == "dead" && leaks("dead"), got == "silent" && leaks("silent"):
		run()
		return ""
	case got != "":
		return got
	}
	decision, _ = body["hookSpecificOutput"].(object)["permissionDecision"].(string)
	if decision == "defer" && leaks("deferred") {
		run()
	}
	if decision == "defer" {
		return "defer"
	}
	if decision == "deny" && !leaks("first") {
		return ""
	}
	if decision == "deny" || decision != "allow" && leaks("garbage") {
		run()
		return ""
	}
	if decision != "allow" {
		return "" // onFailure: block
	}
	say(object{"type": "control_request", "request_id": "c" + id, "request": object{"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": id, "agent_id": agent}})
	body, got = c.answer(time.Hour)
	behavior, _ := body["behavior"].(string)
	if behavior != "allow" && !(leaks("second") && behavior == "deny") && !(leaks("dead2") && got == "dead") {
		return got
	}
	run()
	say(object{"type": "control_request", "request_id": "a" + id, "request": object{"subtype": "hook_callback", "callback_id": "post", "tool_use_id": id,
		"input": object{"hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": id}}})
	_, _ = c.answer(time.Hour)
	return ""
}

// answer is the host's next answer; the word says what came instead.
func (c *cli) answer(wait time.Duration) (object, string) {
	select {
	case text, ok := <-c.lines:
		if !ok {
			return nil, "dead"
		}
		var in struct {
			Response struct {
				Subtype  string          `json:"subtype"`
				Response json.RawMessage `json:"response"`
			} `json:"response"`
		}
		if json.Unmarshal(bytes.TrimSpace(text), &in) != nil {
			os.Exit(1)
		}
		var body object
		if json.Unmarshal(in.Response.Response, &body) != nil {
			body = object{}
		}
		if _, ok := body["hookSpecificOutput"].(object); !ok {
			body["hookSpecificOutput"] = object{}
		}
		return body, ""
	case <-time.After(wait):
		return nil, "silent"
	}
}
