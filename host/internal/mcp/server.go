// Package mcp is the endpoint at which agents find the host's tools: MCP over
// HTTP, stateless, for agents in cells over their cell link and for others on
// the REST listener. It imports the kernel, the tools and the official SDK.
//
// The one idea: the SDK speaks the protocol and nothing else. What it hands over
// are the bytes that came; they were read strictly before it saw them, and the
// kernel alone decides what runs.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// The revisions of MCP that are spoken. Only the newer one has envelopes.
const (
	Revision       = "2026-07-28"
	LegacyRevision = "2025-11-25"
)

// The control envelope, as server/discover advertises it.
const (
	ContractID      = "host.airlock/control-sidecars"
	ContractVersion = "1"
)

// Keys of params._meta.
const (
	metaNonce     = "host.airlock/invocation-nonce"
	metaToolUseID = "claudecode/toolUseId"
)

// MaxBody is the longest request, in bytes.
const MaxBody = 1 << 20

// Options of a Server. Kernel and Log are required.
type Options struct {
	Kernel  *kernel.Kernel
	Version string
	// Token finds whose task a token is and what it is good for here, which may be
	// nothing; ok is false when it is nobody's. nil: none is anybody's.
	Token func(ctx context.Context, token string) (owner workflow.Owner, scopes []string, ok bool)
	// Wrong counts a wrong token; true: its remote has shown too many. nil: nobody
	// counts.
	Wrong func(r *http.Request) (tooMany bool)
	Log   hclog.Logger
}

// Server is the endpoint. Make it with New, end it with Close.
type Server struct {
	opts    Options
	kernel  *kernel.Kernel
	grammar *envelope.Grammar
	lists   map[bool][]*sdk.Tool // with and without envelopes
	handler http.Handler
	cells   *cells
}

// New makes the endpoint. It opens nothing: requests come through HTTP and
// Carry.
func New(opts Options) (*Server, error) {
	s := &Server{opts: opts, kernel: opts.Kernel, grammar: envelope.New(), lists: map[bool][]*sdk.Tool{}}
	caps := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}
	caps.AddExtension(ContractID, s.contract())
	srv := sdk.NewServer(&sdk.Implementation{Name: "airlock", Title: "Airlock", Version: opts.Version}, &sdk.ServerOptions{
		Capabilities: caps, SupportedProtocolVersions: []string{Revision, LegacyRevision},
		Logger:       slog.New(slog.DiscardHandler), // it would print what callers send
		Instructions: "Tools of the host that you run under. Call get_mission_context first: it names your goal, session and task.",
		// The list depends on who asks.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope, c.TTLMs = "private", 60_000 },
	})
	for _, t := range opts.Kernel.Tools() {
		tool := s.describe(t, true)
		srv.AddTool(tool, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return s.call(ctx, t, req)
		})
		if !t.Hidden {
			s.lists[true] = append(s.lists[true], tool)
			s.lists[false] = append(s.lists[false], s.describe(t, false))
		}
	}
	srv.AddReceivingMiddleware(s.lister)
	// A closed stream ends the request of the newer revision.
	stream := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: MaxBody, PropagateRequestCancellation: true,
		// Host and Origin are the listener's to check; a cell's link has neither.
		DisableLocalhostProtection: true, Logger: slog.New(slog.DiscardHandler)})
	s.handler = s.strictly(stream)
	s.cells = newCells(s)
	return s, nil
}

// contract is what a client must know of the envelope without reading every
// schema.
func (s *Server) contract() map[string]any {
	return map[string]any{"version": ContractVersion, "member": envelope.Member, "before": envelope.Before(), "after_success": envelope.After(true),
		"closing": []envelope.Kind{envelope.GoalCompletion, envelope.SessionClose}, "reserved": []envelope.Kind{envelope.SessionContextUpdate},
		"nonce_meta": metaNonce}
}

func (s *Server) describe(t *kernel.Tool, withEnvelope bool) *sdk.Tool {
	return &sdk.Tool{Name: t.Name, Description: t.Describe(withEnvelope), InputSchema: json.RawMessage(t.Schema(s.grammar, withEnvelope)),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.ReadOnly}}
}

// served says whether a method is one of this server's. The SDK answers for
// prompts, resources, completion and logging too, which are not advertised: a
// client that asked for them would take an empty list for one that is kept.
func served(method string) bool {
	for _, prefix := range []string{"prompts/", "resources/", "completion/", "logging/"} {
		if strings.HasPrefix(method, prefix) {
			return false
		}
	}
	return true
}

// lister puts the caller's own list in the place of the whole one: what its
// scopes do not cover is not there, and a legacy revision sees no envelope.
func (s *Server) lister(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if !served(method) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
		}
		res, err := next(ctx, method, req)
		list, ok := res.(*sdk.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		c, known := callerOf(ctx)
		r, isList := req.(*sdk.ListToolsRequest)
		if !known || !isList {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "nobody asks"}
		}
		list.Tools = []*sdk.Tool{}
		for _, t := range s.lists[r.ProtocolVersion() == Revision] {
			if c.May(s.kernel.Tool(t.Name).Scope) {
				list.Tools = append(list.Tools, t)
			}
		}
		return list, nil
	}
}

// call is one tools/call.
func (s *Server) call(ctx context.Context, t *kernel.Tool, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	caller, ok := callerOf(ctx)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "nobody calls"}
	}
	caller.Transport = kernel.MCPLegacy
	if req.ProtocolVersion() == Revision {
		caller.Transport, caller.Caps.ControlSidecars = kernel.MCP, true
	}
	c, err := s.open(caller, t, req.Params.Arguments)
	if err != nil {
		return nil, invalid(err)
	}
	c.Nonce, _ = req.Params.Meta[metaNonce].(string)
	c.Caller.ToolUseID, _ = req.Params.Meta[metaToolUseID].(string)
	a, err := s.run(ctx, c)
	if err != nil {
		return nil, invalid(err)
	}
	return result(a)
}

func invalid(err error) error {
	var e *envelope.Error
	var a *kernel.ArgumentError
	if errors.As(err, &e) || errors.As(err, &a) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the host failed"}
}

// open reads the arguments of a call: the envelope, and for the gateway the tool
// that is meant.
func (s *Server) open(caller kernel.Caller, t *kernel.Tool, raw json.RawMessage) (*kernel.Call, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	args, err := strict.Parse(raw)
	switch {
	case err != nil:
		return nil, &kernel.ArgumentError{Text: "arguments: " + err.Error()}
	case args.Kind != strict.Object:
		return nil, &kernel.ArgumentError{Text: "arguments must be an object"}
	case args.Has(envelope.Member) && caller.Transport != kernel.MCP:
		return nil, &kernel.ArgumentError{Text: envelope.Member + " is not available on this protocol surface; it needs MCP " + Revision}
	}
	business, wc, err := envelope.Split(args)
	if err != nil {
		return nil, err
	}
	c := &kernel.Call{Caller: caller, Tool: t, Args: business}
	if wc.Kind != strict.Absent {
		if c.Envelope, err = s.grammar.Parse(wc, t.Fields); err != nil {
			return nil, err
		}
	}
	if t.Gateway {
		err = s.enter(c, wc)
	}
	return c, err
}

// enter puts the tool that a gateway call names in the gateway's place. Its
// envelope then counts for that tool, and is read again by what that may have.
func (s *Server) enter(c *kernel.Call, wc strict.Value) error {
	name, args, err := kernel.Enter(c.Tool, c.Args)
	if err != nil {
		return err
	}
	switch {
	case name == c.Tool.Name:
		return &kernel.ArgumentError{Text: "tool: " + c.Tool.Name + " does not call itself"}
	case args.Has(envelope.Member):
		return &kernel.ArgumentError{Text: "arguments.arguments: " + envelope.Member + " stands beside tool, not in the arguments of the tool that is called"}
	}
	target := s.kernel.Tool(name)
	if target == nil || target.Hidden {
		c.Tool = s.kernel.Unknown()
		c.Args = strict.Value{Kind: strict.Object, Raw: []byte("{}")}
		return nil
	}
	c.Tool, c.Args = target, args
	if wc.Kind != strict.Absent {
		_, err = s.grammar.Parse(wc, target.Fields)
	}
	return err
}

// run runs a call whose kernel may be asked for.
func (s *Server) run(ctx context.Context, c *kernel.Call) (kernel.Answer, error) {
	return s.kernel.Run(ctx, c)
}

// result writes an answer as MCP has it: what happened as structured content,
// the same as text, and before it, of a failure, what failed in one line.
func result(a kernel.Answer) (*sdk.CallToolResult, error) {
	var errText *string
	if !a.Success {
		errText = &a.Error
	}
	body, err := json.Marshal(struct {
		Success bool            `json:"success"`
		Error   *string         `json:"error"`
		Output  json.RawMessage `json:"output"`
	}{a.Success, errText, a.Output})
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the host failed"}
	}
	res := &sdk.CallToolResult{StructuredContent: json.RawMessage(body), IsError: !a.Success}
	if a.Note != "" {
		res.Content = append(res.Content, &sdk.TextContent{Text: a.Note})
	}
	res.Content = append(res.Content, &sdk.TextContent{Text: string(body)})
	return res, nil
}

// bearer reads the token of a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
