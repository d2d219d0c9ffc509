package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/plugins"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// measurePluginStart measures from an empty catalog to a healthy runtime
// plugin: check and copy of the executable, launch, handshake, Describe,
// Validate, Configure, first health message. The baseline is the bare program,
// which ends at once when nobody shakes hands with it.
func measurePluginStart(b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "p")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	conf, err := writeConfig(dir, b.bin, "http://127.0.0.1:9", agentBlock("agent-01", 1, 1, ""))
	if err != nil {
		return err
	}
	cfg, diags := config.Load(conf, config.Options{})
	if diags.HasErrors() {
		return diags
	}
	var instance []config.Instance
	for _, i := range cfg.Instances {
		if i.Kind == config.KindRuntime {
			instance = append(instance, i)
		}
	}
	program := filepath.Join(b.bin, "plugins", "airlock-runtime-command")
	var starts, bare []float64
	n := b.rounds(30, 5)
	for i := range n + 2 { // two to warm up
		took, err := startPlugin(b, dir, cfg.Plugins.Dir, instance)
		if err != nil {
			return err
		}
		began := time.Now()
		_ = exec.CommandContext(b.ctx, program).Run() // it ends with an error, as it should
		plain := time.Since(began)
		if i >= 2 {
			starts, bare = append(starts, ms(took)), append(bare, ms(plain))
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
	}
	b.emit("plugin_start_p50_ms", "ms", median(starts), median(bare), len(starts), spread(starts))
	return nil
}

// startPlugin starts a catalog of one and ends it.
func startPlugin(b *bench, dir, pluginDir string, instance []config.Instance) (time.Duration, error) {
	c := plugins.New(plugins.Options{
		Dir: pluginDir, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		HostID: "bench", HostVersion: "0.0.0",
		Decode: func(i config.Instance, schema *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) {
			return config.DecodePlugin(i, schema, nil)
		},
		MapDiagnostics: config.MapDiagnostics,
	})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.Close(ctx)
	}()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	began := time.Now()
	c.Start(ctx, instance)
	took := time.Since(began)
	all := c.Status()
	if len(all) != 1 {
		return 0, fmt.Errorf("%d runtime plugins are configured, not one", len(all))
	}
	if s := all[0]; s.State != plugins.Healthy {
		return 0, fmt.Errorf("%s is %s: %s", s.Ref, s.State, s.Reason)
	}
	return took, nil
}
