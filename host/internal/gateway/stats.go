package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Stats are the gateway's counters since the host was started.
type Stats struct {
	// Requests to model APIs and through the proxy that were let through.
	Requests map[string]uint64 // by API name, "proxy" or "forward"
	// Refused by reason: not_listed, address, path, budget, cut, …
	Refused map[string]uint64
	// Tokens and CostMicro are what the model APIs have answered for, by API.
	Tokens, CostMicro map[string]int64
	// DefaultPriced counts answers whose model had the price "*" only, Unpriced
	// those whose model had none: their cost is counted as 0. By API and model.
	DefaultPriced, Unpriced map[string]uint64
}

type counters struct {
	mu sync.Mutex
	s  Stats
}

// maxKeys bounds every map of Stats: a key may come from an upstream.
const maxKeys = 1000

func count[N uint64 | int64](m *map[string]N, key string, n N) {
	if *m == nil {
		*m = map[string]N{}
	}
	if _, known := (*m)[key]; !known && len(*m) >= maxKeys {
		key = "other"
	}
	(*m)[key] += n
}

func (c *counters) change(f func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

// Stats gives the counters.
func (g *Gateway) Stats() Stats {
	g.stats.mu.Lock()
	defer g.stats.mu.Unlock()
	s := g.stats.s
	s.Requests, s.Refused = maps.Clone(s.Requests), maps.Clone(s.Refused)
	s.Tokens, s.CostMicro = maps.Clone(s.Tokens), maps.Clone(s.CostMicro)
	s.DefaultPriced, s.Unpriced = maps.Clone(s.DefaultPriced), maps.Clone(s.Unpriced)
	return s
}

// Prices says, sorted, which models had no price of their own: what the host's
// status shows.
func (g *Gateway) Prices() []string {
	s := g.Stats()
	var out []string
	for key := range s.DefaultPriced {
		out = append(out, worded(key)+` has no price of its own; the price "*" is used`)
	}
	for key := range s.Unpriced {
		out = append(out, worded(key)+" has no price: its calls count as costing nothing")
	}
	slices.Sort(out)
	return out
}

// worded is a key of DefaultPriced. A model's name comes from an upstream.
func worded(key string) string {
	api, model, _ := strings.Cut(key, " ")
	return fmt.Sprintf("gateway %q: model %q", api, model)
}

func (g *Gateway) passed(what string) {
	g.stats.change(func(s *Stats) { count(&s.Requests, what, 1) })
}

// note counts a refusal and logs it, at most once a second for each mission.
// what holds no path, no header and no body.
func (g *Gateway) note(acc *account, reason, what string) {
	g.stats.change(func(s *Stats) { count(&s.Refused, reason, 1) })
	acc.refused.Add(1)
	if hidden, ok := acc.notes.pass(g.opts.Now()); ok {
		g.opts.Log.Warn("a cell was refused a way out", "mission", acc.mission, "reason", reason, "detail", what, "since_last_line", hidden)
	}
}
