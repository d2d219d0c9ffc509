package engine

import (
	"fmt"
	"net"
	"slices"
	"strings"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// Dialer carries the connections that processes in cells open, and cuts a
// mission off from everything that it reaches that way.
type Dialer interface {
	// Carry takes a connection, and owns it. target is as in Dial of the cell
	// link: a gateway's name, ":proxy", ":mcp" or host:port.
	Carry(c Caller, target string, nc net.Conn)
	// Cut ends every connection of a mission and refuses new ones; it gives how
	// many were ended since the first Cut. It never waits for a cell.
	Cut(missionID string) int
	// Restore takes Cut back.
	Restore(missionID string)
	// Forget drops what is held of a mission that has ended.
	Forget(missionID string)
}

// Caller is what a Dialer must know of the mission that a connection came from.
type Caller struct {
	MissionID string
	Agent     string
	Gateways  []string // names
	// Proxy: it may use the HTTP proxy and forwards, within Allow.
	Proxy        bool
	Allow        []string
	MaxTokens    int64 // of model calls; 0 = no limit
	MaxCostMicro int64
}

// dialOption has the connections that a mission's cell opens carried from the
// first moment of the link on. The link says whose they are.
func (e *Engine) dialOption(a *actor) cell.Option {
	return cell.WithDialHandler(func(d *cellv1.Dial, nc net.Conn) {
		sp, err := a.spec()
		if e.opts.Dialer == nil || err != nil || a.latch.Load() || a.state().Terminal() || d.GetSessionId() != a.state().SessionID {
			_ = nc.Close()
			return
		}
		e.opts.Dialer.Carry(sp.caller(a.id), d.GetTarget(), nc)
	})
}

func (s spec) caller(missionID string) Caller {
	return Caller{MissionID: missionID, Agent: s.Cell.Agent, Gateways: s.Gateways, Proxy: s.Cell.Network == "gateway",
		Allow: s.Allow, MaxTokens: s.MaxTokens, MaxCostMicro: s.MaxCostMicro}
}

// cutOff is the first step of a stop after its latch.
func (e *Engine) cutOff(missionID string) {
	if e.opts.Dialer != nil {
		e.opts.Dialer.Cut(missionID)
	}
}

func (e *Engine) restoreDial(missionID string) {
	if e.opts.Dialer != nil {
		e.opts.Dialer.Restore(missionID)
	}
}

func (e *Engine) forgetDial(missionID string) {
	if e.opts.Dialer != nil {
		e.opts.Dialer.Forget(missionID)
	}
}

// gatewayNames are the names in refs like "gateway.anthropic".
func gatewayNames(refs []string) []string {
	var names []string
	for _, r := range refs {
		names = append(names, strings.TrimPrefix(r, "gateway."))
	}
	return names
}

// checkGateways refuses a plan that needs a gateway which the agent block does
// not list.
func checkGateways(sp spec, p *pluginv1.LaunchPlan) error {
	for _, name := range p.GetGateways() {
		if !slices.Contains(sp.Gateways, name) {
			return fmt.Errorf("plan by %s: it needs gateway %q; list gateway.%s in gateways of agent %q", sp.Runtime, name, name, sp.Cell.Agent)
		}
	}
	return nil
}

// withDoors adds the ways out of a session to its start. Where the runtime's
// calls are governed one by one, only the session's own process may use a
// gateway: what it starts was allowed as a call and not as a model.
func withDoors(f *cellv1.Start, hello *cellv1.HelloReply, sp spec, p *pluginv1.LaunchPlan) error {
	mainOnly := p.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL
	for _, name := range sp.Gateways {
		f.Gateways = append(f.Gateways, &cellv1.Gateway{Name: name, MainOnly: mainOnly})
	}
	if slices.Contains(hello.GetFeatures(), "mcp") {
		f.Mcp = &cellv1.Mcp{MainOnly: mainOnly}
	}
	if sp.Cell.Network == "gateway" {
		f.Proxy, f.Forwards = true, forwards(sp.Allow)
	}
	if (f.Proxy || len(f.Gateways) > 0) && !slices.Contains(hello.GetFeatures(), "dial") {
		return fmt.Errorf("the cell agent (version %s) cannot offer gateways", hello.GetAgentVersion())
	}
	return nil
}

// maxForwards is how many plain forwards a session gets.
const maxForwards = 32

// forwards are the entries of an allow list that name one host and one port.
func forwards(allow []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, entry := range allow {
		host, port, err := net.SplitHostPort(entry)
		if err != nil || strings.ContainsAny(host, "*/") || port == "*" || len(out) == maxForwards {
			continue
		}
		// Names that differ in signs only would be one environment variable.
		key := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, strings.ToLower(entry))
		if !seen[key] {
			seen[key] = true
			out = append(out, entry)
		}
	}
	return out
}
