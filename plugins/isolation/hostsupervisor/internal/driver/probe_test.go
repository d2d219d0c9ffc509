package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// TestAProbeThatRanOutOfTimeIsMadeAgain: the machine was busy when the driver
// was configured. The instance is degraded, with the reason, until a later probe
// has come to its end; one that was refused is not made again.
func TestAProbeThatRanOutOfTimeIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		groups bool // the try in control groups fails, not the first one
		again  bool
	}{
		"no time for namespaces":     {context.DeadlineExceeded, false, true},
		"no time for control groups": {context.DeadlineExceeded, true, true},
		"no process to be had":       {fmt.Errorf("fork: %w", os.NewSyscallError("clone", syscall.EAGAIN)), false, true},
		"refused":                    {errors.New("operation not permitted"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := New(hclog.NewNullLogger(), time.Now)
			var busy atomic.Bool
			var tries atomic.Int32
			busy.Store(true)
			d.try = func(_ context.Context, _ *instance, _ level, grouped bool) error {
				tries.Add(1)
				if busy.Load() && grouped == c.groups {
					return c.err
				}
				return nil
			}
			config, err := json.Marshal(map[string]any{"namespaces": "auto"})
			if err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(t.TempDir(), "state")
			if err := d.Configure(context.Background(), &pluginv1.ConfigureRequest{Instance: "probe", StateDir: state, ConfigJson: config, HostId: "probe"}); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Shutdown(context.Background()) }()
			if h := d.Health().Current(); h.GetState() != pluginv1.HealthState_HEALTH_STATE_DEGRADED {
				t.Fatalf("after the probe: %v", h)
			}
			first := d.current.Load()
			busy.Store(false)
			if !c.again {
				d.mu.Lock()
				d.endAgain()
				d.mu.Unlock()
				if n := tries.Load(); n != 2 {
					t.Errorf("it was tried %d times", n)
				}
				return
			}
			for end := time.Now().Add(time.Minute); d.current.Load() == first; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the probe was not made again")
				}
			}
			if now := d.current.Load(); now.level == levelNone || now.levelWhy != "" {
				t.Errorf("after the second probe: %s, %s", now.level, now.levelWhy)
			}
		})
	}
}
