package kernel

import (
	"slices"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Transport is how a call came.
type Transport uint8

// The transports. The zero Transport is a caller inside of the host.
const (
	Internal  Transport = iota
	MCP                 // a stateless revision, in which an envelope is possible
	MCPLegacy           // an older revision of MCP
	REST
)

// Capabilities are what a caller may do beyond calling tools; the zero value is
// nothing. A phase never has any.
type Capabilities struct {
	ControlSidecars bool
}

// Caller is who calls.
type Caller struct {
	Owner     workflow.Owner
	Scopes    []string // AllScopes: every one
	Transport Transport
	Caps      Capabilities
	Cell      bool   // over the link of the mission's cell
	ToolUseID string // of the agent's runtime
}

// AllScopes stands for every scope.
const AllScopes = "*"

// May says whether a caller has a scope; the empty one everybody has.
func (c Caller) May(scope string) bool {
	return scope == "" || slices.Contains(c.Scopes, scope) || slices.Contains(c.Scopes, AllScopes)
}

// Call is one call of a tool: the arguments without the envelope, and the
// envelope. Nonce is a name that the caller chose for it.
type Call struct {
	Caller   Caller
	Tool     *Tool
	Args     strict.Value
	Envelope *envelope.Envelope // nil: none
	Nonce    string
}

func (c *Call) phases() *envelope.Phases {
	if c.Envelope == nil {
		return nil
	}
	return c.Envelope.Control
}

// by is whom the main call runs for.
func (c *Call) by() By {
	b := By{Caller: workflow.Caller{Owner: c.Caller.Owner}, ToolUseID: c.Caller.ToolUseID, Cell: c.Caller.Cell}
	if c.Envelope != nil {
		b.Session = c.Envelope.Record
	}
	return b
}
