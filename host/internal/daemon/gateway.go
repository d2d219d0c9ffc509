package daemon

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/gateway"
	"github.com/airlock-host/airlock/host/internal/mcp"
)

// spentWait is how long the last bytes of a model's answer wait for what they
// cost to be journalled.
const spentWait = 250 * time.Millisecond

// dialer is the gateway as the engine sees it.
type dialer struct {
	gateway *gateway.Gateway
	ledger  *gateway.Ledger
	mcp     *mcp.Server // set before a mission starts
}

// newDialer makes the gateway out of the configuration's gateway blocks.
func (h *host) newDialer() (*dialer, error) {
	log := h.log.Named("gateway")
	ledger, err := gateway.NewLedger(filepath.Join(h.cfg.DataDir, "gateway"), func(mission string, used gateway.Amount) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := h.engine.Spent(context.Background(), mission, used.Tokens, used.CostMicro); err != nil {
				log.Warn("what a model call has used could not be journalled", "mission", mission, "error", err)
			}
		}()
		select {
		case <-done:
		case <-time.After(spentWait):
		}
	})
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(gateway.Options{APIs: apis(h.cfg.Gateways), Budget: ledger, Log: log})
	if err != nil {
		return nil, err
	}
	h.metrics.MustRegister(newGatewayMetrics(g))
	return &dialer{gateway: g, ledger: ledger}, nil
}

// apis turns the blocks that can be used into what the gateway takes.
func apis(blocks []config.Gateway) []gateway.API {
	var out []gateway.API
	for _, b := range blocks {
		u, err := url.Parse(b.Upstream)
		if b.Invalid != "" || err != nil {
			continue
		}
		a := gateway.API{Name: b.Name, Upstream: u, Paths: b.AllowPaths, Idle: b.IdleTimeout, Total: b.TotalTimeout, Prices: map[string]gateway.Price{}}
		for _, p := range b.Prices {
			a.Prices[p.Model] = gateway.Price{Input: p.Input, Output: p.Output, CacheRead: p.CacheRead, CacheWrite: p.CacheWrite}
		}
		for _, hd := range b.Headers {
			a.Headers = append(a.Headers, gateway.NewHeader(hd.Name, hd.Value.Reveal()))
		}
		out = append(out, a)
	}
	return out
}

// Carry is engine.Dialer's.
func (d *dialer) Carry(c engine.Caller, target string, nc net.Conn) {
	if target == mcp.Target {
		d.mcp.Carry(c.MissionID, nc)
		return
	}
	d.gateway.Carry(gateway.Caller{Mission: c.MissionID, Agent: c.Agent, Gateways: c.Gateways, Proxy: c.Proxy, Allow: c.Allow,
		Limit: gateway.Amount{Tokens: c.MaxTokens, CostMicro: c.MaxCostMicro}}, target, nc)
}

// Cut is engine.Dialer's.
func (d *dialer) Cut(mission string) int {
	d.mcp.Cut(mission)
	return d.gateway.Cut(mission)
}

// Restore is engine.Dialer's.
func (d *dialer) Restore(mission string) { d.gateway.Restore(mission) }

// Forget is engine.Dialer's.
func (d *dialer) Forget(mission string) {
	d.mcp.Cut(mission)
	d.gateway.Forget(mission)
	d.ledger.Forget(mission)
}

// gatewayMetrics are the gateway's counters for Prometheus.
type gatewayMetrics struct {
	gateway                         *gateway.Gateway
	requests, refused, tokens, cost *prometheus.Desc
}

func newGatewayMetrics(g *gateway.Gateway) *gatewayMetrics {
	desc := func(name, label, help string) *prometheus.Desc {
		return prometheus.NewDesc("airlock_gateway_"+name, help, []string{label}, nil)
	}
	return &gatewayMetrics{
		gateway:  g,
		requests: desc("requests_total", "gateway", "Requests and connections of cells that were let through."),
		refused:  desc("refused_total", "reason", "Requests and connections of cells that were refused."),
		tokens:   desc("tokens_total", "gateway", "Tokens of model calls."),
		cost:     desc("cost_usd_total", "gateway", "Cost of model calls, in US dollars."),
	}
}

// Describe is prometheus.Collector's.
func (m *gatewayMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.requests, m.refused, m.tokens, m.cost} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (m *gatewayMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.gateway.Stats()
	send := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, label)
	}
	for k, v := range s.Requests {
		send(m.requests, float64(v), k)
	}
	for k, v := range s.Refused {
		send(m.refused, float64(v), k)
	}
	for k, v := range s.Tokens {
		send(m.tokens, float64(v), k)
	}
	for k, v := range s.CostMicro {
		send(m.cost, float64(v)/1e6, k)
	}
}
