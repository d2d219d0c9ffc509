package daemon

import (
	"context"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/plugins"
	"github.com/airlock-host/airlock/host/internal/version"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// CheckPlugins has the plugins of a configuration check their blocks, for
// `airlock validate`. They are started for the question and ended again.
func CheckPlugins(ctx context.Context, cfg *config.Config) hcl.Diagnostics {
	dir, err := os.MkdirTemp("", "airlock-validate-")
	if err != nil {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Plugins cannot be asked", Detail: err.Error()}}
	}
	defer os.RemoveAll(dir)
	lenient := cfg.LenientEvalContext()
	c := plugins.New(plugins.Options{
		Dir: cfg.Plugins.Dir, LockFile: cfg.Plugins.Lock, StateDir: dir, RunDir: dir, HostVersion: version.Version,
		Log: hclog.NewNullLogger(),
		Decode: func(i config.Instance, schema *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) {
			return config.DecodePlugin(i, schema, lenient)
		},
		MapDiagnostics: config.MapDiagnostics,
	})
	defer c.Close(ctx)
	return c.Check(ctx, instances(cfg))
}
