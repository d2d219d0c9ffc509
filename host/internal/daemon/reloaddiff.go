package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
)

// diagnose is diagnostics of a severity as lines: FILE:LINE: what.
func diagnose(diags hcl.Diagnostics, severity hcl.DiagnosticSeverity) string {
	var lines []string
	for _, d := range diags {
		if d.Severity != severity {
			continue
		}
		at := ""
		if d.Subject != nil {
			at = fmt.Sprintf("%s:%d: ", d.Subject.Filename, d.Subject.Start.Line)
		}
		lines = append(lines, at+d.Summary+": "+strings.ReplaceAll(d.Detail, "\n", " "))
	}
	return strings.Join(lines, "\n")
}

// newlyBad are the blocks that cannot be used now and could before, or were not
// there. What was set aside before does not keep other changes out.
func newlyBad(old, now *config.Config) []string {
	var bad []string
	for _, i := range now.Instances {
		if was, known := find(old.Instances, i.Ref()); i.Invalid != "" && (!known || was.Invalid == "") {
			bad = append(bad, fmt.Sprintf("%s:%d: %s: %s", i.Range.Filename, i.Range.Start.Line, i.Ref(), i.Invalid))
		}
	}
	for _, a := range now.Agents {
		n := slices.IndexFunc(old.Agents, func(o config.Agent) bool { return o.Name == a.Name })
		if a.Invalid != "" && (n < 0 || old.Agents[n].Invalid == "") {
			bad = append(bad, fmt.Sprintf("%s:%d: agent %q: %s", a.Range.Filename, a.Range.Start.Line, a.Name, a.Invalid))
		}
	}
	for _, g := range now.Gateways {
		was, known := old.Gateway(g.Ref())
		if g.Invalid != "" && (!known || was.Invalid == "") {
			bad = append(bad, fmt.Sprintf("%s:%d: %s: %s", g.Range.Filename, g.Range.Start.Line, g.Ref(), g.Invalid))
		}
	}
	return bad
}

func find(list []config.Instance, ref string) (config.Instance, bool) {
	for _, i := range list {
		if i.Ref() == ref {
			return i, true
		}
	}
	return config.Instance{}, false
}

// mergeFixed is the new configuration with what only a restart changes as it
// was.
func mergeFixed(old, now *config.Config) *config.Config {
	next := *now
	next.Name, next.DataDir, next.RunDir, next.UIDRange = old.Name, old.DataDir, old.RunDir, old.UIDRange
	next.Listen, next.Plugins, next.TLS, next.Telemetry = old.Listen, old.Plugins, old.TLS, old.Telemetry
	next.Governance.Head = old.Governance.Head
	next.Instances, next.Gateways = slices.Clone(now.Instances), slices.Clone(now.Gateways)
	next.Orchestrator = old.Orchestrator
	if old.Orchestrator != nil && now.Orchestrator != nil {
		o := *old.Orchestrator
		o.Approvals = now.Orchestrator.Approvals
		next.Orchestrator = &o
	}
	return &next
}

// addDraining puts instances and gateways back that are not configured any more
// but in use, and names them.
func addDraining(old, next *config.Config, inUse func(ref string) bool) []string {
	refs := []string{}
	for _, i := range old.Instances {
		if _, stays := find(next.Instances, i.Ref()); !stays && inUse(i.Ref()) {
			next.Instances = append(next.Instances, i)
			refs = append(refs, i.Ref())
		}
	}
	for _, g := range old.Gateways {
		if _, stays := next.Gateway(g.Ref()); !stays && inUse(g.Ref()) {
			next.Gateways = append(next.Gateways, g)
			refs = append(refs, g.Ref())
		}
	}
	return refs
}

// remade are the isolation instances whose config is another one.
func remade(old, next *config.Config) []string {
	var refs []string
	for _, i := range next.Instances {
		if was, known := find(old.Instances, i.Ref()); known && i.Kind == config.KindIsolation && was.ConfigDigest() != i.ConfigDigest() {
			refs = append(refs, i.Ref())
		}
	}
	return refs
}
