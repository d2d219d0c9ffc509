package mcp

import (
	"slices"
	"strings"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
)

// maxID is the largest number that is taken as the id of a request, and -maxID
// the smallest: what is larger does not survive every JSON reader, and an answer
// whose id is not its request's is lost.
const maxID = 1<<53 - 1

// What a message, and the parameters of a tools/call, can have (MCP 2025-11-25
// and 2026-07-28). The parameters of other methods and _meta are open there, and
// here.
var (
	messageMembers = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	callMembers    = []string{"_meta", "name", "arguments", "task", "inputResponses", "requestState"}
)

const methodCall = "tools/call"

// Error codes of JSON-RPC.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeBusy           = -32000 // of the server's own: try again
)

// rpcFault is a message that is refused as it stands. ID is that of the message
// where it has one that can be given back; empty otherwise.
type rpcFault struct {
	id   string
	code int
	text string
}

// frame checks what stands around the arguments of a call, before the SDK reads
// it: that takes a member that it does not know, an envelope in the wrong place
// among them, for one that is not there. nil: it can go on.
func frame(v strict.Value) *rpcFault {
	bad := func(text string) *rpcFault { return &rpcFault{code: codeInvalidRequest, text: text} }
	id := v.Get("id")
	switch id.Kind {
	case strict.Absent, strict.String:
	case strict.Number:
		if n, ok := id.Integer(); !ok || n > maxID || n < -maxID {
			return bad("id: a number must be whole and at most 9007199254740991")
		}
	default:
		return bad("id: it must be a string or a whole number")
	}
	with := func(f *rpcFault) *rpcFault { f.id = string(id.Raw); return f }
	if f := closed(v, messageMembers, codeInvalidRequest, ""); f != nil {
		return with(f)
	}
	if version := v.Get("jsonrpc"); version.Kind != strict.String || version.Text != "2.0" {
		return with(bad(`jsonrpc: it must be "2.0"`))
	}
	method, answers := v.Get("method"), v.Has("result") || v.Has("error")
	switch {
	case method.Kind == strict.Absent && answers && id.Kind != strict.Absent:
		return nil // an answer, to a question that this server has not asked
	case method.Kind != strict.String || method.Text == "":
		return with(bad("method: it is required, and must be a string"))
	case answers:
		return with(bad("a request has no result and no error"))
	}
	switch notice := strings.HasPrefix(method.Text, "notifications/"); {
	case notice && id.Kind != strict.Absent:
		return with(bad("id: a notification has none"))
	case !notice && id.Kind == strict.Absent:
		return bad("id: a request needs one")
	}
	if f := params(method.Text, v.Get("params")); f != nil {
		return with(f)
	}
	return nil
}

// params checks the parameters of a method.
func params(method string, p strict.Value) *rpcFault {
	bad := func(text string) *rpcFault { return &rpcFault{code: codeInvalidParams, text: text} }
	switch none := p.Kind == strict.Absent || p.Kind == strict.Null; {
	case none && method == methodCall:
		return bad("params: they are required")
	case none:
		return nil
	case p.Kind != strict.Object:
		return bad("params: they must be an object")
	}
	for _, m := range p.Members {
		if strings.EqualFold(m.Name, envelope.Member) {
			return bad("params: " + envelope.Member + " stands in params.arguments of tools/call")
		}
	}
	if meta := p.Get("_meta"); meta.Kind != strict.Absent && meta.Kind != strict.Object {
		return bad("params._meta: it must be an object")
	}
	if method != methodCall {
		return nil
	}
	if f := closed(p, callMembers, codeInvalidParams, "params: "); f != nil {
		return f
	}
	if p.Get("name").Kind != strict.String {
		return bad("params.name: it is required, and must be a string")
	}
	return nonce(p.Get("_meta"))
}

// nonce checks the name that a caller gives its call: one that were dropped
// would not find the call again.
func nonce(meta strict.Value) *rpcFault {
	for _, m := range meta.Members {
		if !strings.EqualFold(m.Name, metaNonce) {
			continue
		}
		if m.Name != metaNonce || m.Value.Kind != strict.String || m.Value.Text == "" {
			return &rpcFault{code: codeInvalidParams, text: "params._meta: " + metaNonce + " must be a string that is not empty"}
		}
	}
	return nil
}

// closed refuses the first member that is none of names, without repeating it.
func closed(v strict.Value, names []string, code int, where string) *rpcFault {
	for _, m := range v.Members {
		if !slices.Contains(names, m.Name) {
			return &rpcFault{code: code, text: where + "there is a member that is none of " + strings.Join(names, ", ")}
		}
	}
	return nil
}
