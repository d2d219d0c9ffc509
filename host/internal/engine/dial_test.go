package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/cells"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestForwardsAreSingleHostsAndPorts(t *testing.T) {
	t.Parallel()
	got := forwards([]string{"db.example:5432", "*.example.org:443", "10.0.0.0/8:5432", "a:*", "[::1]:53", "db-example:5432", "*:80", "nonsense", "127.0.0.1:80"})
	if want := []string{"db.example:5432", "[::1]:53", "127.0.0.1:80"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestDoorsOfASession(t *testing.T) {
	t.Parallel()
	able := &cellv1.HelloReply{Features: []string{"ask", "dial"}}
	sp := spec{Gateways: []string{"model"}, Allow: []string{"db.example:5432"}, Cell: cells.Spec{Network: "gateway", Agent: "a"}}
	for name, c := range map[string]struct {
		boundary pluginv1.Boundary
		mainOnly bool
	}{
		"not governed call by call": {pluginv1.Boundary_BOUNDARY_NONE, false},
		"governed call by call":     {pluginv1.Boundary_BOUNDARY_PROTOCOL, true},
	} {
		f := &cellv1.Start{}
		err := withDoors(f, able, sp, &pluginv1.LaunchPlan{Boundary: c.boundary})
		if err != nil || len(f.GetGateways()) != 1 || f.GetGateways()[0].GetMainOnly() != c.mainOnly || !f.GetProxy() || len(f.GetForwards()) != 1 {
			t.Errorf("%s: %v %v", name, f, err)
		}
	}
	sp.Cell.Network = "none"
	f := &cellv1.Start{}
	err := withDoors(f, able, sp, &pluginv1.LaunchPlan{})
	if err != nil || f.GetProxy() || len(f.GetForwards()) != 0 || len(f.GetGateways()) != 1 {
		t.Errorf("mode none: %v %v", f, err)
	}
	if err := withDoors(&cellv1.Start{}, &cellv1.HelloReply{AgentVersion: "0.1"}, sp, &pluginv1.LaunchPlan{}); err == nil || !strings.Contains(err.Error(), "0.1") {
		t.Errorf("an agent that cannot: %v", err)
	}
	f = &cellv1.Start{}
	if err := withDoors(f, &cellv1.HelloReply{}, spec{}, &pluginv1.LaunchPlan{}); err != nil || f.GetMcp() != nil {
		t.Errorf("an agent that need not: %v", err)
	}
	err = withDoors(f, &cellv1.HelloReply{Features: []string{"mcp"}}, spec{}, &pluginv1.LaunchPlan{Boundary: pluginv1.Boundary_BOUNDARY_PROTOCOL})
	if err != nil || !f.GetMcp().GetMainOnly() {
		t.Errorf("the MCP endpoint: %v %v", f, err)
	}
}

func TestPlansMayNeedListedGatewaysOnly(t *testing.T) {
	t.Parallel()
	sp := spec{Gateways: gatewayNames([]string{"gateway.model"}), Runtime: "runtime.x.y", Cell: cells.Spec{Agent: "a"}}
	if err := checkGateways(sp, &pluginv1.LaunchPlan{Gateways: []string{"model"}}); err != nil {
		t.Error(err)
	}
	if err := checkGateways(sp, &pluginv1.LaunchPlan{Gateways: []string{"other"}}); err == nil || !strings.Contains(err.Error(), `list gateway.other in gateways of agent "a"`) {
		t.Error(err)
	}
}
