package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// claudeCalls is how many tool calls a mission of the bench makes.
const claudeCalls = 20

// claudeScript is such a mission: each call is one turn of the model.
var claudeScript = strings.Repeat("bash true\n", claudeCalls) + "say done"

// claudeRig is a host with an agent that runs the real CLI in warm cells, and
// the stand-in of the Messages API, which the bare CLI talks to as well.
type claudeRig struct {
	*rig
	api    *messages.Server
	binary string
	seen   int // requests that were looked at
}

func newClaudeRig(b *bench, binary string) (*claudeRig, error) {
	key := strings.Repeat("bench-key-", 4)
	api, err := messages.Serve("127.0.0.1:0", messages.Options{})
	if err != nil {
		return nil, err
	}
	r := &claudeRig{api: api, binary: binary}
	keyFile := filepath.Join(b.dir, "claude.key")
	if err = os.WriteFile(keyFile, []byte(key), 0o600); err == nil {
		r.rig, err = startedRig(b, fmt.Sprintf(`
gateway "anthropic" {
  upstream    = %q
  allow_paths = ["/v1/messages*"]
  header "x-api-key" {
    value = secret("file:%s")
  }
  price "*" {
    input  = 3
    output = 15
  }
}
runtime "claude-code" "claude" {
  config {
    binary = %q
    tools  = ["Bash", "Read", "Edit", "Write", "AskUserQuestion"]
  }
}
agent "warm" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.claude-code.claude
  gateways  = [gateway.anthropic]
  slots     = 2
  warm      = 2
}
`, api.URL, keyFile, binary))
	}
	if err != nil {
		api.Close()
		return nil, err
	}
	return r, nil
}

func (r *claudeRig) close() {
	r.rig.clean()
	r.api.Close()
}

// requests are those since the last call.
func (r *claudeRig) requests() []messages.Request {
	all := r.api.Requests()
	list := all[r.seen:]
	r.seen = len(all)
	return list
}

// measureClaude measures what Airlock adds to the real CLI: both sides ask the
// same gates and talk to the same stand-in, in turns.
func measureClaude(b *bench) error {
	binary, err := claudecli.Find()
	if err != nil {
		b.skip("tool_overhead_p50_ms", err.Error())
		b.skip("first_request_ratio", err.Error())
		return nil
	}
	binary, remove, err := claudecli.Visible(binary)
	if err != nil {
		return err
	}
	defer remove()
	r, err := newClaudeRig(b, binary)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.healthy(); err != nil {
		return err
	}
	var governed, bare side
	n := b.rounds(11, 2)
	for i := range n + 1 { // one to warm up
		g, err := r.governed(i)
		if err != nil {
			return err
		}
		p, err := r.bare()
		if err != nil {
			return err
		}
		if i > 0 {
			governed.add(g)
			bare.add(p)
		}
	}
	b.note("claude: a tool call and its turn take %.1f ms governed, %.1f ms bare; the first request comes after %.0f and %.0f ms",
		median(governed.turns), median(bare.turns), median(governed.first), median(bare.first))
	b.emit("tool_overhead_p50_ms", "ms", median(governed.turns)-median(bare.turns), median(bare.turns), len(governed.turns), spread(governed.turns))
	b.emit("first_request_ratio", "ratio", median(governed.first)/median(bare.first), 0, len(governed.first), spread(governed.first))
	return nil
}

// side is one of the two that are compared, in ms.
type side struct {
	turns []float64 // request to request, a tool call between them
	first []float64 // begin to first request
}

func (s *side) add(o side) {
	s.turns, s.first = append(s.turns, o.turns...), append(s.first, o.first...)
}

// measured reads what one run has done at the stand-in.
func measured(began time.Time, log []messages.Request) (side, error) {
	if len(log) != claudeCalls+1 {
		return side{}, fmt.Errorf("the stand-in has seen %d requests, want %d", len(log), claudeCalls+1)
	}
	s := side{first: []float64{ms(log[0].At.Sub(began))}}
	for i := 1; i < len(log); i++ {
		s.turns = append(s.turns, ms(log[i].At.Sub(log[i-1].At)))
	}
	return s, nil
}

// governed runs a mission in a warm cell.
func (r *claudeRig) governed(i int) (side, error) {
	if err := r.warmed(2); err != nil {
		return side{}, err
	}
	r.requests()
	id := fmt.Sprintf("claude-%d", i)
	began := time.Now()
	if err := r.dispatch(id, claudeScript, "warm"); err != nil {
		return side{}, err
	}
	if _, err := r.watch.await(r.b.ctx, "mission.completed", id); err != nil {
		return side{}, fmt.Errorf("%w\n%s", err, r.logTail())
	}
	return measured(began, r.requests())
}

// bare runs the CLI alone, allowing everything at both gates.
func (r *claudeRig) bare() (side, error) {
	home, err := os.MkdirTemp(r.b.dir, "c")
	if err != nil {
		return side{}, err
	}
	defer os.RemoveAll(home)
	if err := r.warmed(2); err != nil { // so that nothing else goes on
		return side{}, err
	}
	r.requests()
	ctx, cancel := context.WithTimeout(r.b.ctx, patience)
	defer cancel()
	res, err := claudecli.Run(ctx, claudecli.Options{Binary: r.binary, Dir: home, Home: home, URL: r.api.URL, Key: "bare"}, claudeScript)
	if err != nil {
		return side{}, err
	}
	if res.Text != "done" {
		return side{}, fmt.Errorf("the bare CLI has ended with %q", res.Text)
	}
	return measured(res.Start, r.requests())
}

// gatesTime is how long the runtime may take to try the CLI's gates out: it
// starts the CLI some twenty times.
const gatesTime = 10 * time.Minute

// healthy waits until the runtime has tried the CLI's gates out.
func (r *claudeRig) healthy() error {
	reason := "it does not answer"
	for end := time.Now().Add(gatesTime); time.Now().Before(end) && r.b.ctx.Err() == nil; pause(r.b, 100*time.Millisecond) {
		var view struct {
			Agents []struct {
				Healthy bool
				Reason  string
			} `json:"agents"`
		}
		if r.call(r.b.ctx, "GET", "/api/v1/agents", nil, &view) != nil || len(view.Agents) != 1 {
			continue
		}
		if view.Agents[0].Healthy {
			return nil
		}
		reason = view.Agents[0].Reason
	}
	return fmt.Errorf("the claude-code runtime is not healthy: %s", reason)
}
