package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/host/internal/mcp"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/tools"
	"github.com/airlock-host/airlock/host/internal/version"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// newMCP makes the endpoint at which agents find the host's tools. The engine
// must be there, and nothing in it has started.
func (h *host) newMCP() error {
	log := h.log.Named("mcp")
	flow := h.engine.Workflow()
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "airlock_mcp_calls_total",
		Help: "Calls of tools over MCP, by how the call ended."}, []string{"tool", "state"})
	phases := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "airlock_mcp_phases_total",
		Help: "Control sidecars that were run, by how the phase ended."}, []string{"kind", "state"})
	h.metrics.MustRegister(calls, phases)
	effects := &tools.Effects{Runtime: h.engine, Now: time.Now, Go: h.engine.Go,
		Project: func(ctx context.Context, o workflow.Owner) (string, error) { return h.engine.Project(ctx, string(o)) },
		Ended: func(o workflow.Owner, row string, m workflow.MainOutcome) {
			if err := flow.SettleStarted(context.Background(), o, row, m); err != nil {
				log.Warn("the end of a command that was handed off could not be recorded", "invocation", row, "error", workflow.KindOf(err))
			}
		}}
	k, err := kernel.New(kernel.Options{Service: flow, Tools: tools.All(flow, effects), Log: log, Material: tools.Materials(flow),
		Observe: func(o kernel.Observation) {
			if o.Kind != "" {
				phases.WithLabelValues(string(o.Kind), string(o.State)).Inc()
				return
			}
			calls.WithLabelValues(o.Tool, string(o.State)).Inc()
		}})
	if err != nil {
		return err
	}
	h.mcp, err = mcp.New(mcp.Options{Kernel: k, Version: version.Version, Log: log,
		Token: func(ctx context.Context, token string) (workflow.Owner, []string, bool) {
			task, scopes, ok := h.engine.TaskOfToken(ctx, token)
			return workflow.Owner(task), scopes, ok
		},
		// Requests come through that server only.
		Wrong: func(r *http.Request) bool { return h.server.WrongCredential(r) }})
	h.dialer.mcp = h.mcp
	return err
}
