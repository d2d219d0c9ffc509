package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/isolation/local"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// config is an instance's config block; see Describe.
type config struct {
	Bwrap    string   `json:"bwrap"`
	ReadOnly []string `json:"read_only"`
}

// driver makes cells with bwrap. local.Cells keeps their records, finds them
// again, freezes and kills them: all that is bubblewrap's is in plan.go.
type driver struct {
	plugin.Defaults
	local.Cells

	config atomic.Pointer[settings]
}

// settings are a configuration and what was found with it.
type settings struct {
	config
	program string // bwrap's path
}

func newDriver() *driver {
	d := &driver{}
	d.Cells.Plan = d.plan
	return d
}

// Describe says what the driver is.
func (d *driver) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Name: "bubblewrap", Version: "0.1.0",
		Summary:      "Cells in Linux namespaces made by bubblewrap: a read-only view of the machine's programs, no network, no view of other processes. No limits.",
		Capabilities: []string{"isolation:bubblewrap", "isolation:sandbox"},
		Features:     []string{isolation.FeaturePause},
		Schema: plugin.Schema(
			plugin.String("bwrap", "The program bwrap: a path, or a name that is looked for on PATH.", plugin.Default("bwrap")),
			plugin.StringList("read_only", "Directories of the machine that cells can read, beside /usr and what leads there.",
				plugin.Default([]string{"/etc"}), plugin.AbsolutePath()),
		),
		Needs: []*pluginv1.Need{
			{What: "program", Value: "bwrap", Reason: "makes the cells (package bubblewrap)"},
			{What: "uid", Value: "root", Reason: "gives each cell's workload a uid of its own; as an ordinary user the workload has the agent's"},
		},
	}
}

// Validate checks what the schema cannot.
func (d *driver) Validate(_ context.Context, block []byte) []*pluginv1.Diagnostic {
	var c config
	if err := plugin.DecodeConfig(block, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The block cannot be read", err.Error())}
	}
	var found []*pluginv1.Diagnostic
	if strings.TrimSpace(c.Bwrap) == "" || strings.Contains(c.Bwrap, "\x00") {
		found = append(found, plugin.Problem(plugin.Path("bwrap"), "No program", "Leave the attribute out to use bwrap from PATH."))
	} else if _, err := exec.LookPath(c.Bwrap); err != nil {
		// It may be installed later: the instance is unavailable until then.
		found = append(found, plugin.Warning(plugin.Path("bwrap"), "bwrap was not found", "Install the package bubblewrap: "+err.Error()))
	}
	for i, dir := range c.ReadOnly {
		if filepath.Clean(dir) == "/" {
			found = append(found, plugin.Problem(plugin.Path("read_only", i), "The root cannot be named here", "Name the directories that are meant."))
		}
	}
	return found
}

// Configure takes a configuration; cells that exist keep what they have.
func (d *driver) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	var s settings
	if err := plugin.DecodeConfig(req.GetConfigJson(), &s.config); err != nil {
		return err
	}
	if err := d.Open(req.GetStateDir(), req.GetHostId()); err != nil {
		return err
	}
	program, err := exec.LookPath(s.Bwrap)
	if err != nil {
		d.Health().Unavailable("bwrap was not found; install the package bubblewrap: "+err.Error(), nil)
	} else {
		s.program = program
		d.Health().Healthy(map[string]string{"bwrap": program, "link": link(uint32(os.Geteuid())).String()})
	}
	d.config.Store(&s)
	return nil
}

// link is what a workload reaches of the cell link when the driver has this
// uid: another user's files only root's cells can keep from it.
func link(uid uint32) pluginv1.LinkProtection {
	if uid == 0 {
		return pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED
	}
	return pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED
}
