package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

func TestShortBudgetsLowerMaxTokensAndThenRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	who := caller("m1")
	who.Limit = Amount{Tokens: 4000}
	c := newLink(t, r.Gateway, who).client("anthropic")
	body := `{"stream":false, "max_tokens": 8000 ,"model":"m","messages":["` + strings.Repeat("x", 400) + `"]}`
	if code, text := post(t, c, "/v1/messages", body); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	in := int64(len(body)/4 + 1)
	_, got := r.up.last(t)
	if want := strings.Replace(body, "8000", fmt.Sprint(4000-in), 1); string(got) != want {
		t.Errorf("sent %s", got)
	}
	// 3150 are used; 850 are left.
	if code, _ := post(t, c, "/v1/messages", strings.Replace(body, "8000", "20", 1)); code != 200 {
		t.Fatal(code)
	}
	if _, got := r.up.last(t); !strings.Contains(string(got), `"max_tokens": 20 `) {
		t.Errorf("sent %s", got)
	}
	code, text := post(t, c, "/v1/messages", body)
	if code != 403 || !strings.Contains(text, "budget is spent") || !strings.Contains(text, "max_tokens and max_cost_usd") {
		t.Errorf("%d %s", code, text)
	}
	if n := r.up.requests(); n != 2 {
		t.Errorf("%d requests", n)
	}
	// Counting tokens costs nothing.
	if code, _ := post(t, c, "/v1/messages/count_tokens", body); code != 200 {
		t.Error(code)
	}
}

func TestMoneyLimitsTheAnswerToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	who := caller("m1")
	who.Limit = Amount{CostMicro: 20_000} // 0.02 USD; 15 millionths a token of output
	c := newLink(t, r.Gateway, who).client("anthropic")
	body := `{"model":"m","max_tokens":8000,"messages":[]}`
	if code, text := post(t, c, "/v1/messages", body); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	_, got := r.up.last(t)
	e, err := openEnvelope(got)
	if err != nil || e.maxTokens < 1300 || e.maxTokens > 1333 {
		t.Errorf("max_tokens %d %v", e.maxTokens, err)
	}
}

func TestRequestsThatCannotBeFittedAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{opts: func(o *Options) { o.MaxBody = 64 << 10 }})
	who := caller("m1")
	who.Limit = Amount{Tokens: 500}
	c := newLink(t, r.Gateway, who).client("anthropic")
	for name, tc := range map[string]struct {
		path, body, say string
		code            int
	}{
		"prompt too long":        {"/v1/messages", `{"model":"m","max_tokens":10,"messages":"` + strings.Repeat("x", 4000) + `"}`, "does not cover", 403},
		"thinking does not fit":  {"/v1/messages", `{"model":"m","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024}}`, "thinking", 403},
		"batches":                {"/v1/messages/batches", `{}`, "batches", 403},
		"max_tokens twice":       {"/v1/messages", `{"model":"m","max_tokens":10,"max_tokens":9999}`, "twice", 400},
		"max_tokens not a count": {"/v1/messages", `{"model":"m","max_tokens":1e3}`, "whole number", 400},
		"not JSON":               {"/v1/messages", `hello`, "JSON", 400},
		"two documents":          {"/v1/messages", `{"max_tokens":1}{"max_tokens":2}`, "JSON", 400},
		"too long":               {"/v1/messages", `{"model":"` + strings.Repeat("x", 64<<10) + `"}`, "65536 bytes", 400},
	} {
		t.Run(name, func(t *testing.T) {
			if code, text := post(t, c, tc.path, tc.body); code != tc.code || !strings.Contains(text, tc.say) {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	if used, reserved := r.ledger.Total("m1"); r.up.requests() != 0 || used != (Amount{}) || reserved != (Amount{}) {
		t.Errorf("%d requests, used %v, reserved %v", r.up.requests(), used, reserved)
	}
}

// An upstream that does not care for max_tokens is cut.
func TestAnswersAreCutAtTheLimit(t *testing.T) {
	t.Parallel()
	for name, endless := range map[string]func(w http.ResponseWriter, i int){
		"by its text": func(w http.ResponseWriter, _ int) { say(w, delta("twelve chars")) },
		"by its usage": func(w http.ResponseWriter, i int) {
			say(w, fmt.Sprintf("data: {\"usage\":{\"output_tokens\":%d}}\n\n", i))
		},
		"by no lines": func(w http.ResponseWriter, _ int) { say(w, strings.Repeat("x", 4096)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{})
			stopped := make(chan struct{})
			r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
				defer close(stopped)
				say(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":10}}}\n\n")
				for i := 1; req.Context().Err() == nil; i++ {
					endless(w, i)
				}
			})
			who := caller("m1")
			who.Limit = Amount{Tokens: 200}
			code, text := post(t, newLink(t, r.Gateway, who).client("anthropic"), "/v1/messages", `{"model":"m","max_tokens":1000}`)
			if !strings.HasSuffix(text, "EOF") { // before or after the head, as it comes
				t.Errorf("%d, %d bytes", code, len(text))
			}
			<-stopped
			eventually(t, "the reservation to be settled", func() bool {
				used, reserved := r.ledger.Total("m1")
				return used.Tokens >= 200 && reserved == (Amount{})
			})
		})
	}
}

func TestModelsWithoutAPrice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prices map[string]Price
		log    string
		cost   int64
	}{
		"none":    {nil, "a model has no price;", 0},
		"default": {map[string]Price{"*": {Input: 1_000_000, Output: 1_000_000}}, `the price`, 1000 + 50 + 125 + 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{api: func(a *API) { a.Prices = tc.prices }})
			c := newLink(t, r.Gateway, caller("m1")).client("anthropic")
			for range 3 {
				if code, text := post(t, c, "/v1/messages", `{}`); code != 200 {
					t.Fatal(text)
				}
			}
			used, _ := r.ledger.Total("m1")
			if used.Tokens != 3*3150 || used.CostMicro != 3*tc.cost {
				t.Errorf("used %+v", used)
			}
			if n := strings.Count(r.log.String(), tc.log); n != 1 {
				t.Errorf("said %d times:\n%s", n, r.log)
			}
			if s := r.Stats(); s.Unpriced["anthropic m"]+s.DefaultPriced["anthropic m"] != 3 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	p := Price{Input: 3_000_000, Output: 15_000_000}
	for _, c := range []struct {
		p    Price
		u    usage
		want int64
	}{
		{p, usage{}, 0},
		{p, usage{input: 1}, 3},
		{Price{Input: 1, Output: 1}, usage{input: 1}, 1}, // rounded up
		{p, usage{input: 1_000_000, output: 1_000_000}, 18_000_000},
		{p, usage{cacheRead: 1_000_000}, 300_000},
		{p, usage{cacheWrite: 1_000_000}, 3_750_000},
		{p, usage{cacheWrite: 1_000_000, cacheWriteHour: 1_000_000}, 6_000_000},
		{Price{Input: 3_000_000, CacheRead: 1, CacheWrite: 2_000_000}, usage{cacheRead: 1_000_000, cacheWrite: 1_000_000, cacheWriteHour: 5}, 2_000_001},
		{Price{Input: 1 << 50}, usage{input: 1 << 50}, maxAmount},
		{p, usage{input: -5}, 0},
	} {
		if got := c.p.cost(c.u); got != c.want {
			t.Errorf("%+v of %+v costs %d, not %d", c.u, c.p, got, c.want)
		}
	}
	a := &api{def: API{Prices: map[string]Price{"claude-x": p, "*": {Input: 1}}}}
	for model, how := range map[string]string{"claude-x": priced, "claude-x-20260101": priced, "claude-x-mini": pricedDefault, "": pricedDefault, "*": pricedDefault} {
		if _, got := a.price(model); got != how {
			t.Errorf("%q: %q", model, got)
		}
	}
}

func TestLedgerNeverGrantsMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	l, err := NewLedger("", nil)
	if err != nil {
		t.Fatal(err)
	}
	limit := Amount{Tokens: 1000, CostMicro: 5000}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []Reservation
	total := Amount{}
	for range 50 {
		wg.Go(func() {
			r, err := l.Reserve("m", limit, Amount{Tokens: 70, CostMicro: 10})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				open, total = append(open, r), total.plus(r.Granted)
			} else if !errors.Is(err, ErrSpent) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if total.Tokens != 1000 || len(open) != 15 {
		t.Errorf("granted %+v to %d", total, len(open))
	}
	for _, r := range open {
		l.Settle(r, Amount{Tokens: 1})
		l.Settle(r, Amount{Tokens: 1}) // the second time nothing
	}
	if used, reserved := l.Total("m"); used != (Amount{Tokens: 15}) || reserved != (Amount{}) {
		t.Errorf("%+v %+v", used, reserved)
	}
}

func TestACrashSettlesAtTheReservation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var told []Amount
	tell := func(_ string, used Amount) { told = append(told, used) }
	limit, id := Amount{Tokens: 1000}, "a/../mission\x00"
	l, err := NewLedger(dir, tell)
	if err != nil {
		t.Fatal(err)
	}
	first, err := l.Reserve(id, limit, Amount{Tokens: 300})
	if err != nil {
		t.Fatal(err)
	}
	l.Settle(first, Amount{Tokens: 100})
	if _, err := l.Reserve(id, limit, Amount{Tokens: 500}); err != nil {
		t.Fatal(err)
	}
	again, err := NewLedger(dir, tell) // the host was killed here
	if err != nil {
		t.Fatal(err)
	}
	r, err := again.Reserve(id, limit, Amount{Tokens: 900})
	if err != nil || r.Granted.Tokens != 400 {
		t.Errorf("%+v %v", r, err)
	}
	if len(told) != 2 || told[0].Tokens != 100 || told[1].Tokens != 500 {
		t.Errorf("told %v", told)
	}
	again.Forget(id)
	again.Settle(r, Amount{Tokens: 1}) // late
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path  string
		globs []string
		want  bool
	}{
		{"/v1/messages", []string{"/v1/messages*"}, true}, {"/v1/messages/count_tokens", []string{"/v1/messages*"}, true},
		{"/v1/messages", []string{"/v1/messages"}, true}, {"/v1/messages/", []string{"/v1/messages"}, false},
		{"/v1/x/y/z", []string{"/v1/*/z"}, true}, {"/v1/z", []string{"/v1/*/z"}, false}, {"/v1/xz", []string{"/v1/x*xz"}, false},
		{"/anything", nil, true}, {"", nil, false}, {"/a/../b", nil, false}, {"/a/./b", nil, false}, {"/a//b", nil, false}, {"/a/", nil, true},
		{"/a%2fb", nil, false}, {"/a%00", nil, false},
	} {
		u, err := url.Parse("http://x" + c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := pathAllowed(u, c.globs); got != c.want {
			t.Errorf("%q %v: %v", c.path, c.globs, got)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{`{"max_tokens":5}`, `{"a":{"max_tokens":1},"max_tokens" : 7 , "model":"x"}`, `{}`, `[]`, `{"max_tokens":5`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := openEnvelope(body)
		if err != nil || e.maxTokens == 0 {
			return
		}
		low, err := openEnvelope(e.lowered(1))
		if err != nil || low.maxTokens != 1 || low.model != e.model || low.thinking != e.thinking {
			t.Errorf("%q became %q: %v", body, low.body, err)
		}
	})
}
