package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/telemetry"
	"github.com/airlock-host/airlock/host/internal/version"
)

// newTelemetry makes what counts and what sends traces. It comes before the
// engine, which tells it from its first mission on.
func (h *host) newTelemetry() (err error) {
	if h.counted, err = telemetry.NewMetrics(h.metrics); err != nil {
		return err
	}
	if err := h.metrics.Register(telemetry.NewStateMetrics(h.state)); err != nil {
		return err
	}
	to := h.cfg.Telemetry.OTLPEndpoint
	if to == "" {
		return nil
	}
	h.traces, err = telemetry.NewExporter(telemetry.TraceOptions{Endpoint: to, Host: h.cfg.Name, Version: version.Version,
		Journal: h.store, Log: h.log.Named("traces"), Register: h.metrics})
	return err
}

// committed is told by the engine of every durable fact.
func (h *host) committed(m *mission.Mission, facts []mission.Fact, at time.Time) {
	h.counted.Committed(m, facts, at)
	if h.traces == nil {
		return
	}
	for _, f := range facts {
		if _, over := f.(mission.Ended); over {
			h.traces.Ended(m.ID)
		}
	}
}

// state is what metrics say of the host at the moment that they are read.
func (h *host) state() telemetry.State {
	ready := h.ready()
	s := telemetry.State{Version: version.Version, Ready: ready.Ready, Missions: map[string]int{}, HeadsFailing: ready.Heads != "",
		Reloads: map[string]int{"applied": int(h.now.applied.Load()), "refused": int(h.now.refusals.Load())}}
	if h.engine != nil {
		s.Missions, s.Questions, s.Draining = h.engine.Live(), len(h.engine.Questions()), h.engine.Draining()
		s.Quarantined = len(h.engine.Quarantined())
		for _, a := range h.engine.Agents() {
			s.Agents = append(s.Agents, telemetry.AgentState{Name: a.Name, Healthy: a.Healthy, Slots: a.Slots, Running: a.Running,
				Queued: a.Queued, QueueLimit: a.QueueLimit, Warm: a.Warm})
		}
	}
	for _, p := range h.catalog.Status() {
		s.Plugins = append(s.Plugins, telemetry.PluginState{Ref: p.Ref, State: string(p.State), Restarts: p.Restarts})
	}
	if h.exec == nil {
		return s
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	if err != nil {
		return s
	}
	link := h.exec.Status(req)
	s.Configured, s.Connected, s.OutboxPending, s.OutboxFailed = link.Configured, link.Connected, link.OutboxPending, link.OutboxUndeliverable
	return s
}
