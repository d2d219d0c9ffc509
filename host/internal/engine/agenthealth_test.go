package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/config"
)

// sick is a catalog of which some instances are not well.
type sick struct {
	Plugins
	why        map[string]string
	attributes map[string]string
	features   []string
}

func (s sick) Capabilities(ref string) ([]string, error) {
	if why := s.why[ref]; why != "" {
		return nil, errors.New(ref + " is quarantined: " + why)
	}
	return []string{"of:" + ref}, nil
}

func (s sick) Attributes(string) map[string]string { return s.attributes }
func (s sick) Features(string) []string            { return s.features }

func fleetOf(p Plugins, blocks ...config.Agent) *Engine {
	e := &Engine{opts: Options{Plugins: p}}
	f := &fleet{byName: map[string]*agent{}}
	for _, b := range blocks {
		g := newAgent(b)
		f.agents, f.byName[b.Name] = append(f.agents, g), g
	}
	e.fleet.Store(f)
	return e
}

// Whatever an agent refers to has to be well, its revokers too: else it takes no
// missions, by its name or by choice, and says why.
func TestAnAgentIsAsWellAsAllThatItRefersTo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	whole := config.Agent{Name: "a", Isolation: "isolation.x.i", Runtime: "runtime.x.r", Revokers: []string{"revoker.x.one", "revoker.x.two"}, Queue: 1,
		Workspace: config.Workspace{Source: t.TempDir(), Mode: "copy"}}
	with := func(source string) config.Agent {
		b := whole
		b.Workspace.Source = source
		return b
	}
	for _, tc := range []struct {
		name  string
		ill   string // what is quarantined
		block config.Agent
		says  string
	}{
		{"isolation", "isolation.x.i", whole, `agent "a": isolation.x.i is quarantined: no executable`},
		{"runtime", "runtime.x.r", whole, `agent "a": runtime.x.r is quarantined: no executable`},
		{"first revoker", "revoker.x.one", whole, "revoker.x.one is quarantined: no executable"},
		{"second revoker", "revoker.x.two", whole, "revoker.x.two is quarantined: no executable"},
		{"no source", "", with("/nonexistent/source"), "workspace source /nonexistent/source: no such file"},
		{"source is a file", "", with(file), "it is not a directory"},
		{"somebody else's revoker", "revoker.x.three", whole, ""},
	} {
		e := fleetOf(sick{why: map[string]string{tc.ill: "no executable"}}, tc.block)
		_, named := e.choose(&Dispatch{AgentID: "a"})
		_, free := e.choose(&Dispatch{})
		e.capCh = make(chan struct{})
		e.refreshCapabilities()
		if tc.says == "" {
			if named != nil || free != nil || !slices.Contains(e.Capabilities(), "of:isolation.x.i") {
				t.Errorf("%s: refused: %v, %v", tc.name, named, free)
			}
			continue
		}
		if named == nil || named.Kind != RefusedUnhealthyAgent || !strings.Contains(named.Detail, tc.says) {
			t.Errorf("%s: by its name: %+v", tc.name, named)
		}
		if free == nil || free.Kind != RefusedNoAgent || !strings.Contains(free.Detail, tc.says) {
			t.Errorf("%s: by choice: %+v", tc.name, free)
		}
		if caps := e.Capabilities(); slices.Contains(caps, "of:isolation.x.i") || slices.Contains(caps, "of:runtime.x.r") {
			t.Errorf("%s: it is advertised: %q", tc.name, caps)
		}
	}
	if _, r := fleetOf(sick{}, whole).choose(&Dispatch{AgentID: "b"}); r == nil || r.Kind != RefusedUnknownAgent {
		t.Errorf("an agent that is not there: %+v", r)
	}
}

// What the driver says beforehand that it does not do is said of an idle agent.
func TestAnIdleAgentSaysWhatItsDriverDoesNotDo(t *testing.T) {
	t.Parallel()
	p := sick{attributes: map[string]string{"limit.disk": "not-enforced:no quota", "limit.cpu": "not-enforced:no cgroup", "limit.memory": "enforced-by:x",
		"link": "unprotected: an ordinary user"}}
	asks := config.Agent{Name: "a", Isolation: "isolation.x.i", Resources: config.Resources{Disk: 1 << 30, Memory: 1 << 30}, Checkpoint: "on-suspend"}
	for _, tc := range []struct {
		name  string
		p     sick
		block config.Agent
		want  []string
	}{
		{"asks", p, asks, []string{
			"checkpoint on-suspend: isolation.x.i cannot write cells to disk; at a planned stop of the host they stay as they are",
			"limit disk: not-enforced:no quota", config.UnprotectedLink}},
		{"asks for nothing", p, config.Agent{Name: "a", Isolation: "isolation.x.i", Checkpoint: "off"}, []string{config.UnprotectedLink}},
		{"able", sick{attributes: map[string]string{"link": "protected", "limit.disk": "enforced-by:q"}, features: []string{"checkpoint"}}, asks, nil},
		{"not well", sick{why: map[string]string{"isolation.x.i": "away"}}, asks, nil},
	} {
		e := fleetOf(tc.p, tc.block)
		if got := e.notes(e.fleet.Load().agents[0], nil); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
