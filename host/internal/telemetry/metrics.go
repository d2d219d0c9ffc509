package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// Metrics count what missions and tasks do. They are told every committed fact.
type Metrics struct {
	accepted, ended, events, decisions, calls, approvals, stops, revocations, resumes *prometheus.CounterVec
	tokens, cost                                                                      *prometheus.CounterVec
	start, run                                                                        *prometheus.HistogramVec
}

// NewMetrics makes and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "airlock_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, from, factor float64, n int, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "airlock_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(from, factor, n)}, labels)
	}
	m := &Metrics{
		accepted:    counter("missions_accepted_total", "Missions that were taken in.", "agent", "origin"),
		ended:       counter("missions_ended_total", "Missions that have ended, by how and why.", "agent", "state", "reason"),
		events:      counter("journal_events_total", "Events that were committed to journals.", "kind"),
		decisions:   counter("decisions_total", "Decisions on tool calls, launches included.", "outcome"),
		calls:       counter("calls_total", "Tool calls that were admitted and are over, by how they ended.", "outcome"),
		approvals:   counter("approvals_total", "Answers of humans to calls that waited.", "action"),
		stops:       counter("stops_total", "Stops of missions and tasks, by whom.", "by"),
		revocations: counter("revocations_total", "Answers of issuers that were asked to take access back.", "issuer", "result"),
		resumes:     counter("missions_reconnected_total", "Missions that were found again after a start of the host.", "planned"),
		start:       histogram("mission_start_seconds", "From taking a mission in to its session running.", 0.01, 2, 14, "agent"),
		run:         histogram("mission_duration_seconds", "From taking a mission in to its end.", 0.1, 3, 12, "agent", "state"),
		tokens:      counter("mission_tokens_total", "Tokens of missions that have ended.", "agent"),
		cost:        counter("mission_cost_usd_total", "Cost of missions that have ended, in US dollars.", "agent"),
	}
	for _, c := range []prometheus.Collector{m.accepted, m.ended, m.events, m.decisions, m.calls, m.approvals, m.stops, m.revocations, m.resumes, m.start, m.run, m.tokens, m.cost} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Committed counts facts of a mission that are durable; m is what it is after
// them. It must not block.
func (m *Metrics) Committed(is *mission.Mission, facts []mission.Fact, at time.Time) {
	for _, f := range facts {
		m.events.WithLabelValues(string(f.Kind())).Inc()
		switch f := f.(type) {
		case mission.Opened:
			m.accepted.WithLabelValues(agentOf(is), string(f.Origin)).Inc()
		case mission.Started:
			m.start.WithLabelValues(agentOf(is)).Observe(at.Sub(is.CreatedAt).Seconds())
		case mission.Ended:
			m.ended.WithLabelValues(agentOf(is), string(f.State), reasonOf(f)).Inc()
			m.run.WithLabelValues(agentOf(is), string(f.State)).Observe(at.Sub(is.CreatedAt).Seconds())
			m.tokens.WithLabelValues(agentOf(is)).Add(float64(is.Tokens))
			m.cost.WithLabelValues(agentOf(is)).Add(float64(is.CostMicro) / 1e6)
		case mission.Reconnected:
			m.resumes.WithLabelValues(map[bool]string{true: "yes", false: "no"}[f.Planned]).Inc()
		case mission.Stopped:
			m.stops.WithLabelValues(f.By).Inc()
		case governance.Decided:
			m.decisions.WithLabelValues(string(f.Decision.Status)).Inc()
		case governance.Settled:
			if f.InvocationID != "" {
				m.calls.WithLabelValues(f.Outcome).Inc()
			}
		case governance.Approved:
			m.approvals.WithLabelValues(f.Action).Inc()
		case governance.RevocationResult:
			m.revocations.WithLabelValues(issuerOf(f.Issuer), f.Result).Inc()
		}
	}
}

// agentOf is the agent's name, or harness for a task without one.
func agentOf(m *mission.Mission) string {
	if m.Harness {
		return "harness"
	}
	return m.Agent
}

// reasonOf is a failure's reason, which is one of a few words, or who aborted:
// what an operator wrote is no label.
func reasonOf(f mission.Ended) string {
	if f.State == mission.StateFailed {
		return f.Reason
	}
	return f.AbortedBy
}

// issuerOf is an issuer of the configuration; what a harness has named is no
// label.
func issuerOf(ref string) string {
	if ref == "gateway" || strings.HasPrefix(ref, "revoker.") {
		return ref
	}
	return "other"
}
