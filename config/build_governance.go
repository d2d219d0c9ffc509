package config

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// governance fills the host-wide block in. Whoever has an agent has to say how
// it is governed: nothing that weakens the gate has a default.
func (b *builder) governance(root *node) {
	n := root.one("governance")
	if n == nil {
		if agents := root.all("agent"); len(agents) > 0 {
			b.error(errorAt(agents[0].rng, "Missing governance block",
				"A configuration with an agent says how missions are governed; there is no default for what is let through. Write, for example:\n"+
					"governance {\n  mode       = \"govern\"      # or \"observe\"\n  on_failure = \"fail_closed\" # or \"fail_open\"\n  policy {\n    default = \"allow\" # or \"deny\"\n  }\n}"))
		}
		// The rest of the defaults hold for a host without agents too.
		n = b.section(root, "governance")
	}
	g := Governance{
		Mode: get[string](n, "mode"), OnFailure: get[string](n, "on_failure"),
		ApprovalTimeout: get[time.Duration](n, "approval_timeout"), ApprovalHold: defaultHold,
		Restore: get[string](n, "restore"), MaxResumes: int(get[int64](n, "max_resumes")),
	}
	b.gate(n, &g)
	if budget := n.one("budget"); budget != nil {
		g.Budget = overlay(g.Budget, budget)
	}
	if !n.readable("approval_timeout") {
		g.ApprovalTimeout = -1
	}
	if n.isSet("approval_hold") {
		g.ApprovalHold = get[time.Duration](n, "approval_hold")
	}
	b.baseHold = g.ApprovalHold
	var d *hcl.Diagnostic
	if g.ApprovalHold, d = holdWithin(n, g.ApprovalHold, g.ApprovalTimeout); d != nil {
		b.error(d)
	}
	head := b.section(n, "head")
	g.Head = Head{File: get[string](head, "file"), KeyFile: get[string](head, "key_file"), URL: get[string](head, "url")}
	if g.Head.File != "" && under(g.Head.File, b.cfg.DataDir) {
		b.error(warningAt(head.at("file"), "Heads inside of data_dir",
			"A trusted head in %s goes back in time together with the store. Put it outside, best onto another disk.", b.cfg.DataDir))
	}
	b.cfg.Governance = g
}

// defaultHold is the approval_hold where none is written and approval_timeout is
// not shorter.
const defaultHold = 10 * time.Minute

// holdWithin is how long a process is held for an approval that may take as long
// as timeout. A hold that the block does not write follows the timeout; one that
// it does write and that is longer is an error there. A timeout that could not be
// read (below 0) is an error already, and nothing more is said of it.
func holdWithin(n *node, hold, timeout time.Duration) (time.Duration, *hcl.Diagnostic) {
	switch {
	case hold <= timeout || timeout < 0:
		return hold, nil
	case !n.isSet("approval_hold"):
		return timeout, nil
	}
	return timeout, errorAt(n.at("approval_hold"), "Bad value", "approval_hold (%s) is longer than approval_timeout (%s). Give at most %s, or leave approval_hold out.", hold, timeout, timeout)
}

// operators fills the operator blocks in and reads their tokens once, so that a
// bad token file is an error at load and never an API without authentication.
func (b *builder) operators(root *node) {
	names := map[string]hcl.Range{}
	uids := map[uint32]string{}
	tokens := map[string]string{}
	for _, n := range root.all("operator") {
		o := Operator{
			Name: n.labels[0], TokenFile: get[string](n, "token_file"), TokenEnv: get[string](n, "token_env"), UIDs: get[[]uint32](n, "uids"),
			Role: get[string](n, "role"), Agents: get[[]string](n, "agents"), Range: n.rng, readToken: b.eval.opts.ReadToken,
		}
		if at, dup := names[o.Name]; dup {
			b.error(errorAt(n.rng, "Block given twice", "There is a block %s at %s already.", n.title(), place(at)))
			continue
		}
		names[o.Name] = n.rng
		b.operator(n, o, root, uids, tokens)
		b.cfg.Operators = append(b.cfg.Operators, o)
	}
	if len(names) == 0 {
		b.error(absent("No operator", "The configuration has no operator block: nobody can use the API or the operator socket."))
	}
}

func (b *builder) operator(n *node, o Operator, root *node, uids map[uint32]string, tokens map[string]string) {
	for _, uid := range o.UIDs {
		if other, dup := uids[uid]; dup {
			b.error(errorAt(n.at("uids"), "Uid given twice", "Uid %d is operator %q already; the actor would be a guess.", uid, other))
		}
		uids[uid] = o.Name
	}
	var agents []string
	for _, a := range root.all("agent") {
		agents = append(agents, a.labels[0])
	}
	for _, name := range o.Agents {
		if !slices.Contains(agents, name) {
			b.error(errorAt(n.at("agents"), "Unknown agent", "%s", sentence("There is no agent "+quote(name)+didYouMean(name, agents))))
		}
	}
	switch {
	case n.diags.HasErrors():
		return
	case o.TokenFile != "" && o.TokenEnv != "":
		b.error(errorAt(n.at("token_env"), "Contradiction", "Set token_file or token_env, not both."))
	case o.TokenFile == "" && o.TokenEnv == "":
		if len(o.UIDs) == 0 {
			b.error(errorAt(n.rng, "Missing attribute", "The block %s has no credential: set token_file, token_env or uids.", n.title()))
		}
	default:
		attr := "token_file"
		if o.TokenEnv != "" {
			attr = "token_env"
		}
		token, err := o.Token(b.eval.opts.LookupEnv)
		if err != nil {
			b.error(errorAt(n.at(attr), "Bad operator token", "%s.", err))
			return
		}
		if other, dup := tokens[token]; dup {
			b.error(errorAt(n.at(attr), "Token given twice", "Operator %q has the same token; the actor would be a guess.", other))
		}
		tokens[token] = o.Name
	}
}
