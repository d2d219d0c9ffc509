package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// UnprotectedLink is the note of an agent in whose cells the workload could
// speak as the cell agent.
const UnprotectedLink = "link: unprotected (the workload has the cell agent's uid)"

// Unkept is what the agent asks for and its isolation driver says that it does
// not give, by the attribute of the block that asks for it ("" for the link,
// which nobody asks for). attributes are the health attributes of the driver's
// instance; checkpoint says that it can write cells to disk.
func (a *Agent) Unkept(attributes map[string]string, checkpoint bool) map[string]string {
	out := map[string]string{}
	for limit, set := range map[string]bool{"cpu": a.Resources.CPU > 0, "memory": a.Resources.Memory > 0,
		"pids": a.Resources.Pids > 0, "disk": a.Resources.Disk > 0} {
		if how := attributes["limit."+limit]; set && strings.HasPrefix(how, "not-enforced") {
			out["resources."+limit] = "limit " + limit + ": " + how
		}
	}
	if a.Checkpoint == "on-suspend" && !checkpoint {
		out["checkpoint"] = "checkpoint on-suspend: " + a.Isolation + " cannot write cells to disk; at a planned stop of the host they stay as they are"
	}
	if strings.HasPrefix(attributes["link"], "unprotected") {
		out[""] = UnprotectedLink
	}
	return out
}

// Check says why missions could not be given their files; nil: the source is a
// directory, or there is none.
func (w Workspace) Check() error {
	if w.Source == "" {
		return nil
	}
	switch st, err := os.Stat(w.Source); {
	case err != nil:
		return fmt.Errorf("workspace source %s: %w", w.Source, pathless(err))
	case !st.IsDir():
		return fmt.Errorf("workspace source %s: it is not a directory", w.Source)
	}
	return nil
}

// CheckPlaces finds the directories that agents need and that are not there:
// errors, for their missions would fail; a warning where this user cannot see.
func (c *Config) CheckPlaces() hcl.Diagnostics {
	var diags hcl.Diagnostics
	for i := range c.Agents {
		a := &c.Agents[i]
		err := a.Workspace.Check()
		if err == nil {
			continue
		}
		d := errorAt(c.where(a, "workspace.source"), "Workspace not there", "%s. The agent takes no missions while it is like that.", err)
		if errors.Is(err, fs.ErrPermission) {
			d = warningAt(*d.Subject, "Workspace not looked at", "%s. The host has to be able to read it.", err)
		}
		diags = append(diags, d)
	}
	return diags
}

// CheckUnkept warns of what agents ask of an isolation instance whose driver says
// that it does not give it (see Agent.Unkept).
func (c *Config) CheckUnkept(isolation string, attributes map[string]string, checkpoint bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for i := range c.Agents {
		a := &c.Agents[i]
		if a.Isolation != isolation {
			continue
		}
		unkept := a.Unkept(attributes, checkpoint)
		for _, attr := range sortedKeys(unkept) {
			at := attr
			if at == "" {
				at = "isolation"
			}
			diags = append(diags, warningAt(c.where(a, at), "Not kept by the driver", "Agent %s, %s: %s.", quote(a.Name), isolation, unkept[attr]))
		}
	}
	return diags
}

// where is the place of an agent's attribute, such as "resources.disk"; of its
// header where that is not known.
func (c *Config) where(a *Agent, path string) hcl.Range {
	if c.root == nil {
		return a.Range
	}
	for _, n := range c.root.all("agent") {
		if !slices.Equal(n.labels, []string{a.Name}) {
			continue
		}
		block, attr, nested := strings.Cut(path, ".")
		if !nested {
			return n.at(path)
		}
		if b := n.one(block); b != nil {
			return b.at(attr)
		}
	}
	return a.Range
}
