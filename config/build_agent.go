package config

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// agents fills the agent blocks in; whatever is wrong inside of one quarantines
// that one.
func (b *builder) agents(root *node) {
	seen := map[string]int{}
	nodes := root.all("agent")
	for _, n := range nodes {
		name := n.labels[0]
		diags := everything(n)
		if i, dup := seen[name]; dup {
			// Which of the two is meant is a guess; the name is not used at all.
			first := &b.cfg.Agents[i]
			diags = append(diags, errorAt(n.rng, "Block given twice", "There is a block %s at %s already.", n.title(), place(first.Range)))
			first.Invalid = b.quarantine(n, diags)
			continue
		}
		agent, more := b.agent(n, root)
		agent.Invalid = b.quarantine(n, append(diags, more...))
		seen[name] = len(b.cfg.Agents)
		b.cfg.Agents = append(b.cfg.Agents, agent)
	}
	if len(nodes) == 0 {
		b.error(absent("No agent", "The configuration has no agent block: every mission is refused."))
	}
	b.enoughUIDs(root)
}

// enoughUIDs refuses a range that runs out before the agents' slots do: the
// missions that come too late would fail at their start.
func (b *builder) enoughUIDs(root *node) {
	first, last := b.cfg.UIDRange[0], b.cfg.UIDRange[1]
	cells := int64(0)
	for _, a := range b.cfg.Agents {
		cells += int64(a.Slots) + int64(a.Warm)
	}
	if have := int64(last) - int64(first) + 1; have > 0 && have < cells {
		b.error(errorAt(root.at("uid_range"), "Bad value",
			"The attribute \"uid_range\" has %d uids, and the agents may have %d cells at once (slots and warm together); each cell needs a uid of its own. Give at least [%d, %d].",
			have, cells, first, int64(first)+cells-1))
	}
}

// minMemory is what a cell's agent and a shell need beside one another.
const minMemory = 16 << 20

func (b *builder) agent(n, root *node) (Agent, hcl.Diagnostics) {
	g, own := b.cfg.Governance, b.section(n, "governance")
	a := Agent{
		Name: n.labels[0], Range: n.rng, Revocation: get[string](n, "revocation"),
		Slots: int(get[int64](n, "slots")), Queue: int(get[int64](n, "queue")), Warm: int(get[int64](n, "warm")), Checkpoint: get[string](n, "checkpoint"),
		Restore: g.Restore, MaxResumes: g.MaxResumes, Budget: g.Budget, ApprovalTimeout: g.ApprovalTimeout, ApprovalHold: b.baseHold,
	}
	if own.isSet("restore") {
		a.Restore = get[string](own, "restore")
	}
	if own.isSet("max_resumes") {
		a.MaxResumes = int(get[int64](own, "max_resumes"))
	}
	if own.isSet("approval_timeout") {
		a.ApprovalTimeout = get[time.Duration](own, "approval_timeout")
	} else if !own.readable("approval_timeout") {
		a.ApprovalTimeout = -1
	}
	if own.isSet("approval_hold") {
		a.ApprovalHold = get[time.Duration](own, "approval_hold")
	}
	if budget := own.one("budget"); budget != nil {
		a.Budget = overlay(a.Budget, budget)
	}
	res := b.section(n, "resources")
	a.Resources = Resources{CPU: get[float64](res, "cpu"), Memory: get[uint64](res, "memory"), Pids: uint64(get[int64](res, "pids")), Disk: get[uint64](res, "disk")}
	if i := n.one("intent"); i != nil {
		a.Intent = &Intent{Goal: get[string](i, "goal"), Constraints: get[map[string]any](i, "constraints")}
	}
	diags := b.unbound(n)
	if res.isSet("memory") && a.Resources.Memory > 0 && a.Resources.Memory < minMemory {
		diags = append(diags, errorAt(res.at("memory"), "Bad value",
			"memory is less than 16 MiB: nothing could be started in the cell, whose agent alone takes about 6 MiB. Give at least \"16MiB\"."))
	}
	diags = append(diags, b.agentRefs(&a, n, root)...)
	diags = append(diags, b.agentPlace(&a, n)...)
	var bad *hcl.Diagnostic
	if a.ApprovalHold, bad = holdWithin(own, a.ApprovalHold, a.ApprovalTimeout); bad != nil {
		diags = append(diags, bad)
	}
	if a.Warm > a.Slots && a.Slots > 0 {
		diags = append(diags, errorAt(n.at("warm"), "Bad value", "warm = %d is more than slots = %d: the rest would never be used.", a.Warm, a.Slots))
	}
	return a, diags
}

// agentRefs resolves what the agent refers to.
func (b *builder) agentRefs(a *Agent, n, root *node) hcl.Diagnostics {
	var diags hcl.Diagnostics
	resolve := func(r reference, kind string) string {
		known := b.refs(kind, root)
		if !slices.Contains(known, r.name) {
			diags = append(diags, unknownRef(r, known))
			return r.name
		}
		if inst, ok := b.cfg.Instance(r.name); ok && inst.Invalid != "" {
			diags = append(diags, errorAt(r.rng, "Unusable reference", "%s cannot be used: %s", r.name, sentence(inst.Invalid)))
		}
		if g, ok := b.cfg.Gateway(r.name); ok && g.Invalid != "" {
			diags = append(diags, errorAt(r.rng, "Unusable reference", "%s cannot be used: %s", r.name, sentence(g.Invalid)))
		}
		return r.name
	}
	if r, ok := n.attrs["isolation"].v.(reference); ok {
		a.Isolation = resolve(r, KindIsolation)
	}
	if r, ok := n.attrs["runtime"].v.(reference); ok {
		a.Runtime = resolve(r, KindRuntime)
	}
	for _, r := range get[[]reference](n, "gateways") {
		a.Gateways = append(a.Gateways, resolve(r, "gateway"))
	}
	for _, r := range get[[]reference](n, "revokers") {
		a.Revokers = append(a.Revokers, resolve(r, KindRevoker))
	}
	if len(a.Revokers) > 0 && a.Revocation != "" {
		diags = append(diags, errorAt(n.at("revocation"), "Contradiction", `revocation = "none" waives revokers, and revokers are listed. Keep one of the two.`))
	}
	return diags
}

// agentPlace fills in the network and the files.
func (b *builder) agentPlace(a *Agent, n *node) hcl.Diagnostics {
	var diags hcl.Diagnostics
	net := b.section(n, "network")
	a.Network = Network{Mode: get[string](net, "mode"), Allow: get[[]string](net, "allow")}
	if len(a.Network.Allow) > 0 && a.Network.Mode != "gateway" {
		diags = append(diags, errorAt(net.at("allow"), "Contradiction", `allow works with mode = "gateway" only; the mode is %q.`, a.Network.Mode))
	}
	ws := b.section(n, "workspace")
	a.Workspace = Workspace{Source: get[string](ws, "source"), Mode: get[string](ws, "mode")}
	switch {
	case a.Workspace.Mode != "empty" && a.Workspace.Mode != "" && a.Workspace.Source == "":
		diags = append(diags, errorAt(ws.at("mode"), "Missing attribute", `A workspace with mode = %q needs a source.`, a.Workspace.Mode))
	case a.Workspace.Mode == "empty" && a.Workspace.Source != "" && ws.isSet("source"):
		diags = append(diags, errorAt(ws.at("source"), "Missing attribute", `A workspace with a source needs mode = "copy", "read-only" or "read-write".`))
	}
	return diags
}

// overlay is base with what the budget block sets.
func overlay(base Budget, n *node) Budget {
	if n.isSet("max_cost_usd") {
		base.MaxCostMicroUSD = get[int64](n, "max_cost_usd")
	}
	if n.isSet("max_tokens") {
		base.MaxTokens = get[int64](n, "max_tokens")
	}
	if n.isSet("wall") {
		base.Wall = get[time.Duration](n, "wall")
	}
	if n.isSet("idle") {
		base.Idle = get[time.Duration](n, "idle")
	}
	return base
}
