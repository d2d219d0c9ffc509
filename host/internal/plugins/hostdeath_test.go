package plugins

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// hostMain is a tiny host: it starts one plugin, prints its pid and waits to
// be killed.
func hostMain() {
	dir := os.Getenv("AIRLOCK_TEST_HOST")
	c := New(Options{
		Dir: dir, StateDir: dir + "/state", RunDir: dir + "/run",
		Decode: func(config.Instance, *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) { return []byte("{}"), nil },
		MapDiagnostics: func(config.Instance, []*pluginv1.Diagnostic) hcl.Diagnostics {
			return nil
		},
	})
	c.Start(context.Background(), specs("isolation.good.a"))
	fmt.Println(c.Status()[0].PID)
	select {}
}

func TestPluginsEndWithTheirHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), "AIRLOCK_TEST_HOST="+r.dir)
	host.Stderr = os.Stderr
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || convErr != nil || pid == 0 {
		_ = host.Process.Kill()
		t.Fatalf("the host printed %q: %v", line, err)
	}
	if gone(pid) {
		t.Error("the plugin is gone before its host")
	}
	_ = host.Process.Kill()
	_ = host.Wait()
	eventually(t, "the plugin is gone", func() bool { return gone(pid) })
}
