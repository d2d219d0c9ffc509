// Command airlock-isolation-mutant is a plain driver with one thing wrong as a
// program: AIRLOCK_MUTANT says which. It is for tests of the conformance kit.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// mutant is a plain driver whose attribute "fixed" must be two letters or
// more.
type mutant struct {
	*fake.Plain
	wrong  string
	health plugin.Health
	lock   *os.File
	stdout int
}

func main() {
	m := &mutant{Plain: fake.NewPlain(), wrong: os.Getenv("AIRLOCK_MUTANT")}
	switch m.wrong {
	case "stdout-first":
		fmt.Println("welcome")
	case "stdout-later":
		m.stdout, _ = syscall.Dup(1) // past the SDK's guard
	case "no-reason":
		m.health.Unavailable("", nil)
	}
	isolation.Serve(m)
}

func (m *mutant) Describe() *pluginv1.DescribeResponse {
	d := m.Plain.Describe()
	switch m.wrong {
	case "no-description":
		d.GetSchema().GetAttributes()[0].Description = ""
	case "bad-type":
		d.GetSchema().GetAttributes()[0].Type = "strings"
	case "other-name":
		d.Name = "other"
	case "no-version":
		d.Version = "v1"
	case "slow-describe":
		time.Sleep(1200 * time.Millisecond)
	case "no-capability":
		d.Capabilities = nil
	}
	return d
}

func (m *mutant) Health() *plugin.Health {
	switch m.wrong {
	case "health-late":
		time.Sleep(1200 * time.Millisecond)
	case "health-dear":
		for begun := cpu(); cpu()-begun < 150*time.Millisecond; {
			_ = hex.EncodeToString(make([]byte, 4096))
		}
	case "no-reason":
		return &m.health
	}
	return m.Plain.Health()
}

func (m *mutant) Validate(ctx context.Context, config []byte) []*pluginv1.Diagnostic {
	switch m.wrong {
	case "unknown-accepted":
		return nil
	case "validate-writes":
		_ = os.WriteFile(filepath.Join(os.Getenv("AIRLOCK_MUTANT_DIR"), "validated"), nil, 0o600)
	}
	found := m.Plain.Validate(ctx, config)
	if m.wrong == "no-paths" {
		for _, d := range found {
			d.Path = nil
		}
	}
	return found
}

func (m *mutant) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error {
	switch m.wrong {
	case "stdout-later":
		_, _ = syscall.Write(m.stdout, []byte("progress: 10%\n"))
	case "unknown-accepted":
		var all map[string]json.RawMessage
		if json.Unmarshal(req.GetConfigJson(), &all) == nil {
			delete(all, "no_such_attribute_of_any_plugin")
			req.ConfigJson, _ = json.Marshal(all)
		}
	case "needs-env":
		if os.Getenv("LANG") == "" {
			return plugin.Unavailable("LANG is not set")
		}
	case "invalid-breaks":
		m.Plain = fake.NewPlain() // and then the new one is not configured
	case "exclusive":
		f, err := os.Create(filepath.Join(req.GetStateDir(), "lock"))
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return plugin.FailedPrecondition("another process has the state directory")
		}
		m.lock = f
	case "once":
		if m.lock != nil {
			return plugin.FailedPrecondition("already configured")
		}
		m.lock, _ = os.Open(os.DevNull)
	}
	return m.Plain.Configure(ctx, req)
}

func (m *mutant) Shutdown(context.Context) error {
	if m.wrong == "shutdown-fails" {
		return plugin.FailedPrecondition("cells are running")
	}
	return nil
}

func (m *mutant) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	if m.wrong == "logs-secret" {
		plugin.Logger("mutant").Info("create", "secret", hex.EncodeToString(req.GetSpec().GetLinkSecret()))
	}
	return m.Plain.Create(ctx, req)
}

func (m *mutant) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	if m.wrong == "serves-unconfigured" {
		return nil, plugin.NotFound("no cell")
	}
	return m.Plain.Inspect(ctx, req)
}

// cpu is the CPU time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
