package gateway

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// placeholder is what a cell holds in place of a key.
const placeholder = "airlock-placeholder-m1"

// claudeRig is a gateway between the real CLI, at a unix socket as in a cell,
// and the stand-in of the API.
type claudeRig struct {
	*rig
	api    *messages.Server
	socket string
}

func newClaudeRig(t *testing.T, who Caller, change func(*API)) *claudeRig {
	t.Helper()
	r := &claudeRig{}
	var err error
	r.api, err = messages.Serve("127.0.0.1:0", messages.Options{Check: func(key string) error {
		if key != secretKey {
			return os.ErrPermission
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.api.Close)
	u, err := url.Parse(r.api.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.rig = newRig(t, newChange(u, change))
	r.socket = relay(t, newLink(t, r.Gateway, who))
	return r
}

func newChange(u *url.URL, more func(*API)) change {
	return change{api: func(a *API) {
		a.Upstream = u
		a.Prices = map[string]Price{"claude-sonnet-5-5": {Input: 3_000_000, Output: 15_000_000}}
		if more != nil {
			more(a)
		}
	}}
}

// relay is the cell agent's socket of a gateway.
func relay(t *testing.T, l *link) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "anthropic.sock")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			s, err := l.dial("anthropic")
			if err != nil {
				_ = c.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(s, c); _ = s.Close() })
			wg.Go(func() { _, _ = io.Copy(c, s); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		_ = l.cell.Close() // ends every copy
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return path
}

// claude runs the real CLI in front of the gateway.
func (r *claudeRig) claude(ctx context.Context, t *testing.T, script string) *claudecli.Result {
	t.Helper()
	res, err := claudecli.Run(ctx, claudecli.Options{Binary: claudecli.Need(t), Dir: t.TempDir(), Home: t.TempDir(), URL: "http://anthropic",
		Socket: r.socket, Key: placeholder, Args: []string{"--model", "sonnet"}, Env: []string{"CLAUDE_CODE_MAX_RETRIES=2"}}, script)
	if err != nil {
		t.Fatalf("%v; stderr %s", err, res.Stderr)
	}
	return res
}

// said is what the stand-in has stated in all.
func (r *claudeRig) said(t *testing.T) (total Amount) {
	t.Helper()
	price := Price{Input: 3_000_000, Output: 15_000_000}
	for _, q := range r.api.Requests() {
		if q.Key != messages.Digest(secretKey) {
			t.Errorf("%s arrived with another key than the host's", q.Path)
		}
		for name, values := range q.Header {
			if strings.Contains(strings.Join(values, " "), placeholder) {
				t.Errorf("the placeholder arrived in %s", name)
			}
		}
		if q.Cut != "" {
			continue
		}
		u := usage{input: q.Usage.Input, output: q.Usage.Output, cacheRead: q.Usage.CacheRead, cacheWrite: q.Usage.CacheWrite}
		total = total.plus(Amount{u.tokens(), price.cost(u)})
	}
	return total
}

func TestTheRealCLIIsMeteredAsTheAPIStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		requests     int // 0: as many as there are
		plain        bool
	}{
		"streams":       {"usage 1000 50 2000 100\nbash echo a\nusage 3000 70\nbash echo b\nsay done", "done", 3, false},
		"plain answers": {"break\nusage 900 90 10 20\nsay whole", "whole", 0, true},
		"an overload":   {"overload 1\nusage 500 5\nsay later", "later", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClaudeRig(t, caller("m1"), nil)
			res := r.claude(t.Context(), t, c.script)
			log := r.api.Requests()
			if res.Text != c.want || c.requests > 0 && len(log) != c.requests {
				t.Fatalf("%q in %d requests; %+v", res.Text, len(log), res)
			}
			said := r.said(t)
			if c.plain {
				if log[len(log)-1].Stream {
					t.Error("no plain request came")
				}
				// What came of the streams before they broke counts too.
				if used, _ := r.ledger.Total("m1"); used.Tokens < said.Tokens {
					t.Errorf("metered %+v, stated at least %+v", used, said)
				}
				return
			}
			eventually(t, "it is metered as it was stated", func() bool {
				used, reserved := r.ledger.Total("m1")
				return used == said && reserved == (Amount{})
			})
		})
	}
}

func TestAModelWithoutAPriceOfItsOwnTakesTheDefault(t *testing.T) {
	t.Parallel()
	r := newClaudeRig(t, caller("m1"), func(a *API) { a.Prices = map[string]Price{"*": {Input: 3_000_000, Output: 15_000_000}} })
	r.claude(t.Context(), t, "usage 1000 50\nsay done")
	said := r.said(t)
	eventually(t, "it is metered with the default price", func() bool {
		used, _ := r.ledger.Total("m1")
		return used == said
	})
	if got := strings.Join(r.Prices(), "\n"); got != `gateway "anthropic": model "claude-sonnet-5-5" has no price of its own; the price "*" is used` {
		t.Errorf("%s", got)
	}
}

func TestTheRealCLIKeepsWithinItsBudget(t *testing.T) {
	t.Parallel()
	who := caller("m1")
	who.Limit = Amount{Tokens: 40_000}
	r := newClaudeRig(t, who, nil)
	res := r.claude(t.Context(), t, "usage 9000 1000\n"+strings.Repeat("bash echo more\n", 20)+"say done")
	if !res.IsError || !strings.Contains(res.Text, "budget") || res.APIStatus != 403 {
		t.Errorf("%+v", res)
	}
	used, _ := r.ledger.Total("m1")
	if used.Tokens > 50_000 || used.Tokens < 20_000 {
		t.Errorf("used %+v", used)
	}
	for _, q := range r.api.Requests() {
		if q.MaxTokens > 40_000 {
			t.Errorf("a request for %d tokens was let through", q.MaxTokens)
		}
	}
}

func TestACutEndsTheRealCLIsOpenStream(t *testing.T) {
	t.Parallel()
	r := newClaudeRig(t, caller("m1"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan *claudecli.Result, 1)
	go func() { ended <- r.claude(ctx, t, "silent 600000\nsay never") }()
	eventually(t, "the stream is open", func() bool { return len(r.api.Requests()) == 1 })
	r.Cut("m1")
	res := <-ended
	if !res.IsError || strings.Contains(res.Text, "never") || len(r.api.Requests()) != 1 {
		t.Errorf("%d requests, %+v", len(r.api.Requests()), res)
	}
}
