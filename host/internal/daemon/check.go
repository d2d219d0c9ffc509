package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/plugins"
	"github.com/airlock-host/airlock/host/internal/version"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
)

// CheckPlugins has the plugins of a configuration check their blocks, for
// `airlock validate`, and warns of what agents ask of a driver that does not give
// it. The plugins are started for the question and ended again. Blocks that are
// wrong already are left out.
func CheckPlugins(ctx context.Context, cfg *config.Config) hcl.Diagnostics {
	if cfg.Plugins.Dir == "" {
		return nil // it is wrong, and that is said
	}
	dir, err := os.MkdirTemp("", "airlock-validate-")
	if err != nil {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Plugins cannot be asked", Detail: err.Error()}}
	}
	defer os.RemoveAll(dir)
	lenient := cfg.LenientEvalContext()
	c := plugins.New(plugins.Options{
		Dir: cfg.Plugins.Dir, LockFile: cfg.Plugins.Lock, StateDir: dir, RunDir: dir, HostVersion: version.Version,
		HostID: filepath.Base(dir), Log: hclog.NewNullLogger(),
		Decode: func(i config.Instance, schema *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) {
			return config.DecodePlugin(i, schema, lenient)
		},
		MapDiagnostics: config.MapDiagnostics,
	})
	defer c.Close(ctx)
	var diags hcl.Diagnostics
	for _, i := range instances(cfg) {
		if i.Invalid != "" {
			continue
		}
		found := c.Check(ctx, []config.Instance{i})
		diags = append(diags, found...)
		used := func(a config.Agent) bool { return a.Isolation == i.Ref() }
		if found.HasErrors() || !slices.ContainsFunc(cfg.Agents, used) {
			continue
		}
		// One that is not well says nothing now; the host says it when it is.
		if says, err := c.Ask(ctx, i); err == nil {
			diags = append(diags, cfg.CheckUnkept(i.Ref(), says.Attributes, slices.Contains(says.Features, isolation.FeatureCheckpoint))...)
		}
	}
	return diags
}
