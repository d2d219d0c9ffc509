package telemetry

import "github.com/prometheus/client_golang/prometheus"

// State is how a host is at one moment.
type State struct {
	Version   string
	Ready     bool
	Missions  map[string]int // live ones, by the wire's states
	Questions int            // that wait for a human, approvals among them
	Agents    []AgentState
	Plugins   []PluginState
	// Connected to the orchestrator, and what waits for it.
	Configured, Connected       bool
	OutboxPending, OutboxFailed int
	HeadsFailing, Draining      bool
	Quarantined                 int            // tasks whose journals do not verify
	Reloads                     map[string]int // by result: applied, refused
}

// AgentState is one agent.
type AgentState struct {
	Name                               string
	Healthy                            bool
	Slots, Running, Queued, QueueLimit int
	Warm                               int
}

// PluginState is one plugin instance.
type PluginState struct {
	Ref, State string
	Restarts   int
}

// stateMetrics asks for the state whenever the metrics are read.
type stateMetrics struct {
	read                                                        func() State
	info, ready, missions, questions                            *prometheus.Desc
	healthy, slots, running, waiting, limit, warm               *prometheus.Desc
	plugin, restarts, connected, pending, failed, heads, drains *prometheus.Desc
	reloads, quarantined                                        *prometheus.Desc
}

// NewStateMetrics is a collector of what read says.
func NewStateMetrics(read func() State) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("airlock_"+name, help, labels, nil)
	}
	return &stateMetrics{
		read:        read,
		info:        desc("build_info", "1, with the version.", "version"),
		ready:       desc("ready", "1 while the host takes missions (/readyz)."),
		missions:    desc("missions", "Missions that have not ended, by state.", "state"),
		questions:   desc("questions_waiting", "Questions and approvals that wait for a human."),
		healthy:     desc("agent_healthy", "1 while the agent takes missions.", "agent"),
		slots:       desc("agent_slots", "Missions that the agent runs at once.", "agent"),
		running:     desc("agent_running", "Missions of the agent that hold a slot.", "agent"),
		waiting:     desc("agent_queued", "Missions that wait for a slot of the agent.", "agent"),
		limit:       desc("agent_queue_limit", "Missions that may wait for a slot of the agent.", "agent"),
		warm:        desc("agent_warm_cells", "Cells of the agent that are ready.", "agent"),
		plugin:      desc("plugin_up", "1 while the plugin instance takes work; the state says why not.", "plugin", "state"),
		restarts:    desc("plugin_restarts_total", "Restarts of the plugin instance after crashes.", "plugin"),
		connected:   desc("orchestrator_connected", "1 while the link to the orchestrator is up; absent without an orchestrator."),
		pending:     desc("outbox_pending", "Events that wait for the orchestrator."),
		failed:      desc("outbox_undeliverable", "Events that were given up."),
		heads:       desc("heads_failing", "1 while trusted heads cannot be written."),
		drains:      desc("draining", "1 while the host takes no new missions because it drains."),
		quarantined: desc("quarantined_tasks", "Tasks that are left alone since their journals do not verify."),
		reloads:     desc("reloads_total", "Reloads of the configuration, by result.", "result"),
	}
}

// Describe is prometheus.Collector's.
func (m *stateMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.info, m.ready, m.missions, m.questions, m.healthy, m.slots, m.running, m.waiting, m.limit, m.warm,
		m.plugin, m.restarts, m.connected, m.pending, m.failed, m.heads, m.drains, m.reloads, m.quarantined} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (m *stateMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(m.info, 1, s.Version)
	gauge(m.ready, one(s.Ready))
	for state, n := range s.Missions {
		gauge(m.missions, float64(n), state)
	}
	gauge(m.questions, float64(s.Questions))
	for _, a := range s.Agents {
		gauge(m.healthy, one(a.Healthy), a.Name)
		gauge(m.slots, float64(a.Slots), a.Name)
		gauge(m.running, float64(a.Running), a.Name)
		gauge(m.waiting, float64(a.Queued), a.Name)
		gauge(m.limit, float64(a.QueueLimit), a.Name)
		gauge(m.warm, float64(a.Warm), a.Name)
	}
	for _, p := range s.Plugins {
		gauge(m.plugin, one(p.State == "healthy" || p.State == "degraded"), p.Ref, p.State)
		count(m.restarts, float64(p.Restarts), p.Ref)
	}
	if s.Configured {
		gauge(m.connected, one(s.Connected))
	}
	gauge(m.pending, float64(s.OutboxPending))
	gauge(m.failed, float64(s.OutboxFailed))
	gauge(m.heads, one(s.HeadsFailing))
	gauge(m.drains, one(s.Draining))
	gauge(m.quarantined, float64(s.Quarantined))
	for result, n := range s.Reloads {
		count(m.reloads, float64(n), result)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
