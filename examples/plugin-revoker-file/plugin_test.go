package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// TestMain makes the test binary its own plugin: the kit starts it as a host
// would, kills it and starts it again.
func TestMain(m *testing.M) {
	if os.Getenv(plugin.MagicCookieKey) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "d", "tokens")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	configure := &pluginv1.ConfigureRequest{Instance: "file", ConfigJson: config, StateDir: dir, RunDir: dir, HostId: "host"}
	p, err := conformance.StartRevoker(t.Context(), exe, dir, configure)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()

	// The issuer is the file: it lets in whoever has a token of it. It is away
	// when the directory has another name.
	issuer := conformance.Issuer{
		Accepts: func(_ context.Context, g *pluginv1.Grant) (bool, error) {
			b, err := os.ReadFile(path)
			return strings.Contains(string(b), " "+g.GetEnv()["FILE_TOKEN"]+"\n"), err
		},
		Away: func(context.Context) (func() error, error) {
			return func() error { return os.Rename(filepath.Join(dir, "away"), filepath.Dir(path)) },
				os.Rename(filepath.Dir(path), filepath.Join(dir, "away"))
		},
	}
	// What a file cannot be made to do.
	undeclared := []string{"permanent", "partial-failure-report", "deadline", "cancel", "verify-catches-a-lie"}
	for _, c := range conformance.Revoker(t.Context(), p.Revoker(), conformance.RevokerOptions{
		Plugin: p.Plugin(), Configure: configure, HostID: "host", Features: (&file{}).Describe().GetFeatures(),
		Issuer: issuer, Restart: p.Restart, Logs: p.Logs,
	}) {
		want := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			want = conformance.NotDeclared
		}
		if c.Result != want {
			t.Errorf("%s: %s, not %s: %s", c.Name, c.Result, want, c.Detail)
		}
	}
}
