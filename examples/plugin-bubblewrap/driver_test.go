package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/isolation/local"
)

// The checks of `airlock plugin test`, against this plugin as it is built.
func TestConformance(t *testing.T) {
	agent := os.Getenv("AIRLOCK_CELL_AGENT")
	if bin := os.Getenv("AIRLOCK_BIN"); agent == "" && bin != "" { // Airlock's own `make test`
		agent = filepath.Join(bin, "airlock-cell")
	}
	if agent == "" {
		agent, _ = exec.LookPath("airlock-cell")
	}
	if _, err := exec.LookPath("bwrap"); err != nil || agent == "" {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal("this test needs bwrap (package bubblewrap) and airlock-cell, on PATH or in AIRLOCK_CELL_AGENT")
		}
		t.Skip("this test needs bwrap (package bubblewrap) and airlock-cell, on PATH or in AIRLOCK_CELL_AGENT")
	}
	binary := filepath.Join(t.TempDir(), "airlock-isolation-bubblewrap")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	report, err := conformance.Binary(t.Context(), binary, conformance.BinaryOptions{AgentBinary: agent})
	if err != nil {
		t.Fatal(err)
	}
	undeclared := []string{"limits-memory", "limits-cpu", "limits-pids", "limits-disk", "checkpoint-stops", "checkpoint-restore"}
	if os.Geteuid() != 0 {
		undeclared = append(undeclared, "link-protected")
	}
	for _, c := range report.Checks {
		switch {
		case c.Result == conformance.Fail, c.Result == conformance.NotDeclared && !slices.Contains(undeclared, c.Name):
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		default:
			t.Logf("%s: %s %s", c.Name, c.Result, c.Detail)
		}
	}
}

func TestACellHasNoNetworkUnlessItIsOpened(t *testing.T) {
	d := newDriver()
	d.config.Store(&settings{program: "/usr/bin/bwrap"})
	for mode, own := range map[pluginv1.NetworkMode]bool{
		pluginv1.NetworkMode_NETWORK_MODE_NONE: true, pluginv1.NetworkMode_NETWORK_MODE_GATEWAY: true, pluginv1.NetworkMode_NETWORK_MODE_OPEN: false,
	} {
		plan, err := d.plan(t.Context(), &local.Place{Spec: &pluginv1.CellSpec{Network: &pluginv1.Network{Mode: mode}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(plan.Argv, "--unshare-net"); got != own {
			t.Errorf("%v: --unshare-net is %v", mode, got)
		}
	}
}
