package engine

import (
	"encoding/json"
	"strings"

	"github.com/airlock-host/airlock/host/internal/governance/gate"
)

// mcpPrefix is how a runtime names the tools of the host's MCP endpoint.
const mcpPrefix = "mcp__airlock__"

// envelopeMember is the member of such a tool's arguments that is no argument.
const envelopeMember = "_wc"

// toolOf is a tool's own name.
func toolOf(name string) string { return strings.TrimPrefix(name, mcpPrefix) }

// cutEnvelope takes the control envelope out of canonical arguments, before the
// fingerprint is taken and anything is journalled: it holds proofs (rulings 37).
func cutEnvelope(tool string, args json.RawMessage) (json.RawMessage, error) {
	if !strings.HasPrefix(tool, mcpPrefix) {
		return args, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return nil, err
	}
	if _, has := members[envelopeMember]; !has {
		return args, nil
	}
	delete(members, envelopeMember)
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return gate.Canonical(text)
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
