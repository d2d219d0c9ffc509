package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// suite is the version of the canaries: what an older suite has passed counts
// no more.
const suite = 1

// canaries are the ways in which a gate could fail open. Each is tried out with
// the binary that missions run; one run may tell about several.
var canaries = map[string]string{
	"gates-in-force":     "the hooks are taken, a hook that fails blocks, and the rule that asks before every call is there",
	"admitted-runs":      "a call that passes both gates runs: what the others find missing would be seen",
	"denied-builtin":     "a built-in tool does not run when the first gate denies it",
	"denied-second-gate": "a call does not run when the second gate denies it",
	"denied-mcp":         "a tool of an MCP server does not run when the first gate denies it",
	"denied-sub-agent":   "a call of a sub-agent is asked about and does not run when it is denied",
	"decider-dead":       "a call does not run when the decider dies at either gate",
	"decider-silent":     "a call does not run while the decider says nothing at either gate",
	"decider-garbage":    "a call does not run for an answer that is none",
	"workspace-settings": "settings in the workspace that disable hooks, allow every call, run a hook or redirect the API have no effect",
	"deferred":           "a call that is put off does not run, and is asked about again when the session is resumed",
}

// canaryRun is one or more trials, and what they say about canaries; a nil
// error = pass.
type canaryRun struct {
	names []string
	run   func(context.Context, *canaryRig) map[string]error
}

// canaryRig makes trials.
type canaryRig struct {
	cli, dir string
	limit    time.Duration
	n        int
}

func (r *canaryRig) trial(script string, decide func(gateAsk) reply) *trial {
	r.n++
	return &trial{cli: r.cli, dir: filepath.Join(r.dir, fmt.Sprintf("t%d", r.n)), script: script, decide: decide, limit: r.limit}
}

func canaryRuns() []canaryRun {
	return []canaryRun{
		{[]string{"gates-in-force", "admitted-runs", "denied-builtin", "denied-second-gate", "denied-mcp", "denied-sub-agent"}, tryDenials},
		{[]string{"decider-dead"}, tryDead},
		{[]string{"decider-silent"}, trySilent},
		{[]string{"decider-garbage"}, tryGarbage},
		{[]string{"workspace-settings"}, tryWorkspace},
		{[]string{"deferred"}, tryDeferred},
	}
}

// tryAll runs every canary; the map has "pass" or what went wrong, by name.
// tell is called before each run.
func tryAll(ctx context.Context, cli, dir string, tell func(done int)) (map[string]string, error) {
	rig := &canaryRig{cli: cli, dir: dir, limit: 2 * time.Minute}
	out := map[string]string{}
	for _, c := range canaryRuns() {
		tell(len(out))
		found := c.run(ctx, rig)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, name := range c.names {
			out[name] = "pass"
			if err := found[name]; err != nil {
				out[name] = clip(err.Error(), 400)
			}
		}
	}
	return out, nil
}

// failed are the canaries that did not pass, by name.
func failed(results map[string]string) (names []string) {
	for name := range canaries {
		if results[name] != "pass" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// passed is what is kept of a suite that was passed.
type passed struct {
	Suite   int               `json:"suite"`
	Digest  string            `json:"digest"` // of the binary
	Plugin  string            `json:"plugin"` // digest of this program
	Results map[string]string `json:"results"`
}

const passedFile = "canaries.json"

// remembered are the results of an earlier run with the same two programs; nil
// = there are none, or none that count.
func remembered(stateDir, digest, self string) map[string]string {
	b, err := os.ReadFile(filepath.Join(stateDir, passedFile))
	if err != nil {
		return nil
	}
	var p passed
	if json.Unmarshal(b, &p) != nil || p.Suite != suite || p.Digest != digest || p.Plugin != self || self == "" || len(failed(p.Results)) > 0 {
		return nil
	}
	return p.Results
}

// remember keeps results that are all good.
func remember(stateDir, digest, self string, results map[string]string) error {
	if len(failed(results)) > 0 {
		return errors.New("what failed is not kept")
	}
	b, err := json.Marshal(passed{suite, digest, self, maps.Clone(results)})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(stateDir, passedFile+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(stateDir, passedFile))
}
