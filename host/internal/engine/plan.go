package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// What a dispatch would come to.
const (
	WouldStart     = "start"     // a slot is free
	WouldQueue     = "queue"     // it would wait for one
	WouldDuplicate = "duplicate" // the id is known: nothing would be started
	WouldRefuse    = "refuse"
)

// Plan is what a dispatch would come to if it were made now. It is made by the
// same choice and from the same spec as the mission.
type Plan struct {
	Would   string   `json:"would"`
	Refusal *Refusal `json:"-"` // with WouldRefuse

	Agent     string `json:"agent,omitempty"`
	Isolation string `json:"isolation,omitempty"` // ref
	Runtime   string `json:"runtime,omitempty"`   // ref
	// Capabilities are what agent provides.
	Capabilities []string `json:"capabilities,omitempty"`
	// Ahead is how many missions wait already, with WouldQueue.
	Ahead int `json:"ahead"`

	Cell       *PlannedCell         `json:"cell,omitempty"`
	Governance *PlannedGovernance   `json:"governance,omitempty"`
	Budget     *PlannedBudget       `json:"budget,omitempty"`
	Intent     *governance.Envelope `json:"intent"` // null: none
	Gateways   []string             `json:"gateways"`
	Revokers   []string             `json:"revokers"`
	// Revocation is "none" where issuers outside of the host are waived.
	Revocation string   `json:"revocation,omitempty"`
	Restore    string   `json:"restore,omitempty"`
	MaxResumes int      `json:"max_resumes"`
	Notes      []string `json:"notes"` // what status says out loud of the agent

	// Others are the agents that were not chosen, in config order, and why.
	Others []Passed `json:"others"`
}

// PlannedCell is the place that the mission would have.
type PlannedCell struct {
	Warm        bool     `json:"warm"` // a cell is ready
	CPU         float64  `json:"cpu"`  // of this and what follows: 0 is no limit
	MemoryBytes uint64   `json:"memory_bytes"`
	Pids        uint64   `json:"pids"`
	DiskBytes   uint64   `json:"disk_bytes"`
	Network     string   `json:"network"` // none | gateway | open
	Allow       []string `json:"allow"`
	Workspace   string   `json:"workspace"` // copy | read-only | read-write | empty
	Source      string   `json:"source,omitempty"`
}

// PlannedGovernance is how its calls would be judged.
type PlannedGovernance struct {
	Mode        string `json:"mode"`
	OnFailure   string `json:"on_failure"`
	Default     string `json:"default"`
	RulesDigest string `json:"rules_digest"`
	// Stages are those that look at its calls.
	Stages    []string      `json:"stages"`
	Policies  []PlannedRule `json:"policies"`
	Approvals []PlannedRule `json:"approvals"`
	Risk      []PlannedRule `json:"risk"`
	Bindings  []PlannedRule `json:"bindings"`
	Plugins   []string      `json:"plugins"` // policy plugins that are asked
	Timeout   string        `json:"approval_timeout"`
	Hold      string        `json:"approval_hold"`
}

// PlannedRule is a rule that is in force.
type PlannedRule struct {
	Name   string `json:"name"`
	Tool   string `json:"tool"`
	When   string `json:"when,omitempty"`
	Effect string `json:"effect"`
}

// PlannedBudget are the mission's limits; 0 and "" are none.
type PlannedBudget struct {
	MaxCostUSD float64 `json:"max_cost_usd"`
	MaxTokens  int64   `json:"max_tokens"`
	Wall       string  `json:"wall,omitempty"`
	Idle       string  `json:"idle,omitempty"`
}

// Passed is an agent that was not chosen.
type Passed struct {
	Agent string `json:"agent"`
	Why   string `json:"why"`
}

// Plan says what Accept would do with a dispatch, and changes nothing.
func (e *Engine) Plan(ctx context.Context, d Dispatch) (Plan, error) {
	p := Plan{Would: WouldRefuse, Gateways: []string{}, Revokers: []string{}, Notes: []string{}, Others: []Passed{}}
	var refusal *Refusal
	if d.MissionID != "" {
		switch m, err := e.find(ctx, d.MissionID); {
		case err == nil:
			acc, err := known(m, &d, payloadDigest(d.Payload))
			if errors.As(err, &refusal) {
				p.Refusal = refusal
				return p, nil
			}
			p.Would = WouldDuplicate
			p.Agent, p.Isolation, p.Runtime = m.Agent, m.Isolation, m.Runtime
			if acc.Differs {
				p.Notes = append(p.Notes, "it was asked for with another payload; the running mission goes on")
			}
			return p, nil
		case !errors.Is(err, ErrNotFound):
			return p, err
		}
	}
	if p.Refusal = e.closed(); p.Refusal != nil {
		return p, nil
	}
	g, refusal := e.choose(&d)
	p.Others = e.passed(&d, g)
	if p.Refusal = refusal; refusal != nil {
		return p, nil
	}
	block := *g.block()
	o := mission.Opened{}
	if err := e.wishes(&o, d, block); err != nil {
		p.Refusal = &Refusal{Kind: RefusedInvalid, Detail: err.Error()}
		return p, nil
	}
	p.Would = WouldQueue
	if slot, _ := g.room(); slot {
		p.Would = WouldStart
	}
	v := g.view()
	p.Agent, p.Isolation, p.Runtime, p.Ahead, p.Intent = block.Name, block.Isolation, block.Runtime, v.Queued, o.Intent
	_, p.Capabilities, _ = e.assess(g, &d)
	p.Notes = append(p.Notes, e.notes(g, e.live())...)
	p.Revocation = block.Revocation
	p.fill(specOf(block))
	p.Cell.Warm = v.Warm > 0
	p.Governance = e.plannedRules(specOf(block), o.Intent)
	return p, nil
}

// fill says what the spec says that the mission would keep.
func (p *Plan) fill(sp spec) {
	p.Cell = &PlannedCell{CPU: sp.Cell.CPU, MemoryBytes: sp.Cell.MemoryBytes, Pids: sp.Cell.Pids, DiskBytes: sp.Cell.DiskBytes,
		Network: sp.Cell.Network, Allow: append([]string{}, sp.Allow...), Workspace: sp.Cell.Workspace.Mode, Source: sp.Cell.Workspace.Source}
	p.Budget = &PlannedBudget{MaxCostUSD: float64(sp.MaxCostMicro) / 1e6, MaxTokens: sp.MaxTokens, Wall: span(sp.Wall), Idle: span(sp.Idle)}
	p.Gateways, p.Revokers = append(p.Gateways, sp.Gateways...), append(p.Revokers, sp.Revokers...)
	p.Restore, p.MaxResumes = sp.Restore, sp.MaxResumes
}

func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// plannedRules are the rules in force.
func (e *Engine) plannedRules(sp spec, intent *governance.Envelope) *PlannedGovernance {
	g, r := e.conf.Load().Governance, e.rules()
	out := &PlannedGovernance{Mode: r.Mode(), OnFailure: r.OnFailure(), Default: g.PolicyDefault, RulesDigest: r.Digest(), Stages: r.Stages(),
		Policies: plannedPolicy(g.Policy), Approvals: plannedPolicy(g.Approve), Risk: []PlannedRule{}, Bindings: []PlannedRule{}, Plugins: []string{},
		Timeout: span(sp.QuestionTimeout), Hold: span(sp.Hold)}
	if g.Risk != nil {
		for _, rule := range g.Risk.Rules {
			x := PlannedRule{Name: rule.Name, Tool: rule.Tool.String(), Effect: rule.Risk}
			if rule.When != nil {
				x.When = rule.When.Text()
			}
			out.Risk = append(out.Risk, x)
		}
	}
	for _, b := range g.Bindings {
		out.Bindings = append(out.Bindings, PlannedRule{Name: b.Name, Tool: b.Tool.String(), Effect: b.Severity,
			When: fmt.Sprintf("%s %s %s", b.Argument, b.Op, b.Constraint)})
	}
	for _, p := range r.Plugins() {
		out.Plugins = append(out.Plugins, p.Name)
	}
	return out
}

func plannedPolicy(rules []config.PolicyRule) []PlannedRule {
	out := []PlannedRule{}
	for _, r := range rules {
		x := PlannedRule{Name: r.Name, Tool: r.Tool.String(), Effect: r.Effect}
		if r.When != nil {
			x.When = r.When.Text()
		}
		out = append(out, x)
	}
	return out
}

// passed says of every agent but the chosen one why it was not.
func (e *Engine) passed(d *Dispatch, chosen *agent) []Passed {
	out := []Passed{}
	for _, g := range e.fleet.Load().agents {
		if g == chosen {
			continue
		}
		name := g.block().Name
		fit, _, why := e.assess(g, d)
		switch {
		case d.AgentID != "" && d.AgentID != name:
			why = fmt.Sprintf("the dispatch names agent %q", d.AgentID)
		case chosen == nil:
		case fit == fitLater:
			why = fmt.Sprintf("it fits, but its slots are taken, and %q has a free one or comes first", chosen.block().Name)
		case fit == fitNow:
			why = fmt.Sprintf("it fits, but %q comes first in the configuration", chosen.block().Name)
		}
		out = append(out, Passed{name, why})
	}
	return out
}
