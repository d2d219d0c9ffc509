package dist_test

import (
	"strings"
	"testing"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/config/dist"
)

func TestDefaultConfigurationIsValidAndFormatted(t *testing.T) {
	t.Parallel()
	src := []config.Source{{Name: "airlock.hcl", Bytes: []byte(dist.Config)}}
	cfg, diags := config.Parse(src, config.Options{
		Strict:    true,
		LookupEnv: func(string) (string, bool) { return "", false },
		ReadToken: func(string) ([]byte, error) { return []byte(strings.Repeat("x", 32)), nil },
		Hostname:  func() (string, error) { return "h", nil },
	})
	if len(diags) != 0 || cfg.Orchestrator != nil || len(cfg.Agents) != 1 {
		t.Fatalf("%v", diags)
	}
	if out, diags := config.Fmt([]byte(dist.Config), "airlock.hcl"); diags.HasErrors() || string(out) != dist.Config {
		t.Errorf("not in the usual layout: %v", diags)
	}
}

// Ruling 48.
func TestUnits(t *testing.T) {
	t.Parallel()
	lines := func(unit string) map[string]bool {
		set := map[string]bool{}
		for _, l := range strings.Split(unit, "\n") {
			set[strings.TrimSpace(l)] = true
		}
		return set
	}
	host, cells := lines(dist.HostUnit), lines(dist.CellsUnit)
	for _, want := range []string{"KillMode=mixed", "RuntimeDirectoryPreserve=yes"} {
		if !host[want] {
			t.Errorf("the host's unit lacks %s", want)
		}
	}
	for _, want := range []string{"Delegate=yes", "TasksMax=infinity"} {
		if !cells[want] {
			t.Errorf("the cells' unit lacks %s", want)
		}
	}
	for line := range host {
		for _, bad := range []string{"PrivateTmp=", "ProtectSystem=", "RestrictNamespaces=", "PrivateDevices=", "SystemCallFilter="} {
			if strings.HasPrefix(line, bad) {
				t.Errorf("the host's unit has %s", line)
			}
		}
	}
}
