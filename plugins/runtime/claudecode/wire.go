package main

import (
	"bytes"
	"encoding/json"
)

// The CLI's side of the protocol: one JSON object a line, each way. Only what
// the machine looks at has a field; the shapes were recorded from Claude Code
// 2.1.332 (testdata/).

// frame is one line of the CLI's standard output.
type frame struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	State     string `json:"state"`
	RequestID string `json:"request_id"`

	Request  json.RawMessage `json:"request"`  // of control_request
	Response json.RawMessage `json:"response"` // of control_response
	Message  json.RawMessage `json:"message"`  // of assistant and user

	Parent  string `json:"parent_tool_use_id"`
	AgentID string `json:"agent_id"`
	TaskID  string `json:"task_id"`
	ToolUse string `json:"tool_use_id"`
	Meta    []meta `json:"tool_result_meta"`

	Attempt     int    `json:"attempt"` // of api_retry
	MaxRetries  int    `json:"max_retries"`
	ErrorStatus int    `json:"error_status"`
	Err         any    `json:"error"`
	Version     string `json:"claude_code_version"`
}

// meta says why a tool result is what it is.
type meta struct {
	ID         string `json:"id"`
	NotRun     string `json:"non_execution_kind"`
	Permission struct {
		Decision string `json:"decision"`
	} `json:"permission_decision"`
}

// request is what the CLI asks.
type request struct {
	Subtype    string          `json:"subtype"`
	CallbackID string          `json:"callback_id"`
	ToolName   string          `json:"tool_name"`
	ToolUseID  string          `json:"tool_use_id"`
	AgentID    string          `json:"agent_id"`
	Input      json.RawMessage `json:"input"`
}

// hookInput is the input of a hook_callback.
type hookInput struct {
	Event      string          `json:"hook_event_name"`
	ToolName   string          `json:"tool_name"`
	ToolInput  json.RawMessage `json:"tool_input"`
	ToolUseID  string          `json:"tool_use_id"`
	AgentID    string          `json:"agent_id"`
	Response   json.RawMessage `json:"tool_response"`
	Error      json.RawMessage `json:"error"`
	DurationMS *float64        `json:"duration_ms"`
}

// response is the CLI's answer to a request of ours.
type response struct {
	Subtype   string          `json:"subtype"`
	RequestID string          `json:"request_id"`
	Error     string          `json:"error"`
	Response  json.RawMessage `json:"response"`
}

// initialized is the answer to initialize.
type initialized struct {
	HooksApplied     bool   `json:"hooks_applied"`
	FailureSupported bool   `json:"hook_on_failure_supported"`
	SessionState     string `json:"session_state"`
	Version          string `json:"claude_code_version"`
}

// rules is the answer to list_permission_rules.
type rules struct {
	State struct {
		Rules []rule `json:"rules"`
	} `json:"state"`
}

// rule is one permission rule, and where it comes from.
type rule struct {
	Behavior string `json:"behavior"`
	Source   string `json:"source"`
	Rule     string `json:"rule"`
}

// message is the message of an assistant or user frame.
type message struct {
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"`
	Usage   usage           `json:"usage"`
}

// block is a part of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (u usage) total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// blocks are the parts of a message; a message that is one string has none.
func (m *message) blocks() []block {
	if c := bytes.TrimSpace(m.Content); len(c) == 0 || c[0] != '[' {
		return nil
	}
	var b []block
	_ = json.Unmarshal(m.Content, &b) // what has another shape has no part for us
	return b
}

// line is a message of ours as the CLI reads it.
func line(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // it holds strings and checked raw JSON only
		return nil
	}
	return b.Bytes()
}

type object = map[string]any

// The requests of ours, by their ids.
const (
	initID  = "airlock-initialize"
	rulesID = "airlock-rules"
	stopID  = "airlock-interrupt"
)

// hookTimeout is how long, in seconds, the CLI holds a hook open: longer than
// any approval_hold. Afterwards the call is blocked.
const hookTimeout = 7 * 24 * 3600

func initialize() []byte {
	hook := func(id string, more object) []object {
		h := object{"hookCallbackIds": []string{id}, "timeout": hookTimeout}
		for k, v := range more {
			h[k] = v
		}
		return []object{h}
	}
	return line(object{"type": "control_request", "request_id": initID, "request": object{
		"subtype": "initialize", "hooks": object{
			"PreToolUse":         hook("pre", object{"onFailure": "block"}),
			"PostToolUse":        hook("post", nil),
			"PostToolUseFailure": hook("post", nil),
		}}})
}

func listRules() []byte {
	return line(object{"type": "control_request", "request_id": rulesID, "request": object{"subtype": "list_permission_rules"}})
}

func interrupt() []byte {
	return line(object{"type": "control_request", "request_id": stopID, "request": object{"subtype": "interrupt"}})
}

func userMessage(text string) []byte {
	return line(object{"type": "user", "message": object{"role": "user", "content": text}, "parent_tool_use_id": nil})
}

func success(requestID string, body any) []byte {
	return line(object{"type": "control_response", "response": object{
		"subtype": "success", "request_id": requestID, "response": body}})
}

func failure(requestID, why string) []byte {
	return line(object{"type": "control_response", "response": object{
		"subtype": "error", "request_id": requestID, "error": why}})
}

// preAnswer answers the first gate; decision is allow, deny or defer.
func preAnswer(decision, reason string, updated json.RawMessage) object {
	out := object{"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
	if len(updated) > 0 {
		out["updatedInput"] = updated
	}
	return object{"hookSpecificOutput": out}
}

// postAnswer lets the model see a result, and a warning with it.
func postAnswer(event, warning string) object {
	out := object{"hookEventName": event}
	if warning != "" {
		out["additionalContext"] = warning
	}
	return object{"hookSpecificOutput": out}
}

// allowed and denied answer the second gate. They never carry permissions.
func allowed(updated json.RawMessage) object {
	out := object{"behavior": "allow"}
	if len(updated) > 0 {
		out["updatedInput"] = updated
	}
	return out
}

func denied(why string) object { return object{"behavior": "deny", "message": why} }
