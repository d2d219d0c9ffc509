package api

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the API's own. A nil registerer counts into nothing that anybody
// sees.
type metrics struct {
	requests *prometheus.CounterVec
	failures prometheus.Counter
	sockets  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "airlock_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "airlock_api_auth_failures_total", Help: "Wrong operator credentials.",
		}),
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "airlock_api_websockets", Help: "Open WebSockets of operators.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.failures, m.sockets} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) request(rt Route, status int) {
	if status != 0 {
		m.requests.WithLabelValues(rt.Method+" "+rt.Path, strconv.Itoa(status)).Inc()
	}
}

func (m *metrics) denied() { m.failures.Inc() }

func (m *metrics) socket(n float64) { m.sockets.Add(n) }
