package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// call is one request to a model API and what it costs.
type call struct {
	g   *Gateway
	acc *account
	api *api

	reserved bool
	res      Reservation
	input    int64 // estimate of the request's tokens; 0: not looked at
	maxOut   int64 // tokens that the answer may have; 0: no limit
	model    string
	sent     bool
	meter    *meter // of the answer, once it is there
	once     sync.Once
}

// replay is a body that was read and is sent from memory.
type replay struct{ *bytes.Reader }

// Close is io.Closer's.
func (replay) Close() error { return nil }

// prepare reserves what the call may cost. With a limit it reads the body, and
// answers with the one to send instead.
func (c *call) prepare(w http.ResponseWriter, r *http.Request) (*replay, *refusal) {
	limit := c.acc.limit
	if limit == (Amount{}) || r.Method != http.MethodPost || strings.HasSuffix(r.URL.Path, "/count_tokens") {
		return nil, c.reserve(Amount{}, Amount{})
	}
	if strings.Contains(r.URL.Path+"/", "/batches/") {
		return nil, refuse("budget", "batches are paid for long after the call, and this mission has a budget; a mission without max_tokens and max_cost_usd may use them")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.g.opts.MaxBody))
	if err != nil {
		return nil, refuse("malformed", "the body could not be read, or has more than %d bytes", c.g.opts.MaxBody)
	}
	e, err := openEnvelope(body)
	if err != nil {
		return nil, refuse("malformed", "%v, and this mission has a budget", err)
	}
	c.input, c.model = e.inputEstimate(), e.model
	price, _ := c.api.price(e.model)
	in := usage{input: c.input}
	want := limit // all there is, when the call does not say how long its answer may be
	if e.maxTokens > 0 {
		both := usage{input: c.input, output: e.maxTokens}
		want = Amount{both.tokens(), price.cost(both)}
	}
	if refused := c.reserve(limit, want); refused != nil {
		return nil, refused
	}
	c.maxOut = c.fits(limit, price, in)
	switch {
	case c.maxOut < 1:
		return nil, c.spent("what is left of the mission's budget does not cover this request")
	case e.maxTokens == 0:
		return &replay{bytes.NewReader(body)}, nil
	case c.maxOut >= e.maxTokens:
		c.maxOut = e.maxTokens
		return &replay{bytes.NewReader(body)}, nil
	case e.thinking >= c.maxOut:
		return nil, c.spent("what is left of the mission's budget does not cover the thinking that this request asks for")
	}
	return &replay{bytes.NewReader(e.lowered(c.maxOut))}, nil
}

// reserve takes the reservation.
func (c *call) reserve(limit, want Amount) *refusal {
	res, err := c.g.opts.Budget.Reserve(c.acc.mission, limit, want)
	switch {
	case errors.Is(err, ErrSpent):
		return c.spent("the mission's budget is spent")
	case err != nil:
		c.g.opts.Log.Error("a model call could not be reserved", "mission", c.acc.mission, "error", err)
		return refuse("budget", "the host cannot keep account of this call at the moment")
	}
	c.res, c.reserved = res, true
	return nil
}

func (c *call) spent(what string) *refusal {
	return refuse("budget", "%s; max_tokens and max_cost_usd in the budget block of governance, or of agent %q, set it", what, c.acc.agent)
}

// fits is how many tokens of answer what was granted pays for.
func (c *call) fits(limit Amount, price Price, in usage) int64 {
	fit := int64(maxAmount)
	if limit.Tokens > 0 {
		fit = min(fit, c.res.Granted.Tokens-in.tokens())
	}
	if limit.CostMicro > 0 && price.Output > 0 {
		left := c.res.Granted.CostMicro - price.cost(in)
		if left > maxAmount/1_000_000 {
			left = maxAmount / 1_000_000
		}
		fit = min(fit, left*1_000_000/price.Output)
	}
	return fit
}

// settle ends the reservation with what was used. It runs once, before the last
// bytes of the answer are passed on where that is possible.
func (c *call) settle() {
	c.once.Do(func() {
		if !c.reserved {
			return
		}
		c.g.opts.Budget.Settle(c.res, c.used())
	})
}

func (c *call) used() Amount {
	if c.meter == nil {
		if !c.sent {
			return Amount{}
		}
		// It may have been worked on: its input counts, as far as that is known.
		price, _ := c.api.price(c.model)
		u := usage{input: c.input}
		return Amount{u.tokens(), price.cost(u)}
	}
	u, known := c.meter.used()
	if !known {
		return c.res.Granted
	}
	if u == (usage{}) {
		return Amount{}
	}
	model := c.meter.model
	if model == "" {
		model = c.model
	}
	price, how := c.api.price(model)
	if how != priced && c.model != "" && c.model != model {
		if p, h := c.api.price(c.model); h == priced { // an alias
			price, how = p, h
		}
	}
	a := Amount{u.tokens(), price.cost(u)}
	c.api.missed(c.g, model, how)
	c.g.stats.change(func(s *Stats) {
		count(&s.Tokens, c.api.def.Name, a.Tokens)
		count(&s.CostMicro, c.api.def.Name, a.CostMicro)
	})
	return a
}

// missed notes a model that has no price of its own.
func (a *api) missed(g *Gateway, model, how string) {
	if how == priced {
		return
	}
	if len(model) > 128 {
		model = model[:128]
	}
	g.stats.change(func(s *Stats) {
		key := a.def.Name + " " + model
		if how == pricedDefault {
			count(&s.DefaultPriced, key, 1)
		} else {
			count(&s.Unpriced, key, 1)
		}
	})
	a.mu.Lock()
	first := !a.noted[model] && len(a.noted) < maxKeys
	if first {
		a.noted[model] = true
	}
	a.mu.Unlock()
	if !first {
		return
	}
	if how == pricedDefault {
		g.opts.Log.Warn("a model has no price of its own; the price \"*\" was used", "gateway", a.def.Name, "model", model)
		return
	}
	g.opts.Log.Warn("a model has no price; its calls cost nothing, its tokens count", "gateway", a.def.Name, "model", model)
}
