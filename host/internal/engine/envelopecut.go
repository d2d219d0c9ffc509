package engine

import (
	"encoding/json"
	"strings"

	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/jsontext"
)

// mcpPrefix is how a runtime names the tools of the host's MCP endpoint.
const mcpPrefix = "mcp__airlock__"

// envelopeMember is the member of such a tool's arguments that is no argument.
const envelopeMember = "_wc"

// toolOf is a tool's own name.
func toolOf(name string) string { return strings.TrimPrefix(name, mcpPrefix) }

// cutEnvelope takes the control envelope out of canonical arguments of one of
// the endpoint's tools, before the fingerprint is taken and anything is
// journalled: it holds proofs (rulings 37). What is left is written in one way,
// so that the call is known again when it comes to the endpoint, which has read
// it.
func cutEnvelope(tool string, args json.RawMessage) (json.RawMessage, error) {
	if !strings.HasPrefix(tool, mcpPrefix) {
		return args, nil
	}
	text, err := oneSpelling(args, envelopeMember)
	if err != nil {
		return nil, err
	}
	return gate.Canonical(text)
}

// oneSpelling writes an object without one of its members: names in order, each
// string in its shortest form, numbers as they are.
func oneSpelling(args json.RawMessage, without string) (json.RawMessage, error) {
	members, err := jsontext.Members(args)
	if err != nil {
		return nil, err
	}
	delete(members, without)
	return jsontext.Write(members)
}

// recorded is a call's arguments as they may be journalled and shown: without
// what rules redact, and without the proofs that tools of the host's own MCP
// endpoint are called with, also through call_runtime_tool.
func recorded(rules *gate.Rules, tool string, args json.RawMessage) json.RawMessage {
	args = rules.Redact(tool, args)
	if !strings.HasPrefix(tool, mcpPrefix) {
		return args
	}
	var paths [][]string
	for _, name := range []string{"attempt_fence", "consume_token", "active_turn_consume_token", "expected_assignment_fence"} {
		paths = append(paths, []string{name}, []string{"arguments", name})
	}
	return rules.Hide(args, paths...)
}

// withEnvelope puts the envelope of the arguments that were proposed back into
// those that a rule made of them.
func withEnvelope(tool string, updated, proposed json.RawMessage) json.RawMessage {
	if !strings.HasPrefix(tool, mcpPrefix) {
		return updated
	}
	var from, to map[string]json.RawMessage
	if json.Unmarshal(proposed, &from) != nil || json.Unmarshal(updated, &to) != nil || from[envelopeMember] == nil {
		return updated
	}
	to[envelopeMember] = from[envelopeMember]
	text, err := json.Marshal(to)
	if err != nil {
		return updated
	}
	return text
}
