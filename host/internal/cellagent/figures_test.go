package cellagent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/cell"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// buildAgent builds the program as it is shipped.
func buildAgent(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), programName)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "../../cmd/airlock-cell")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// The agent runs in every cell, so its memory counts many times.
func TestAgentStaysSmall(t *testing.T) {
	t.Parallel()
	const limit = 6_000_000
	bin := buildAgent(t)
	a := startProgram(t, plain, bin, 0)
	c := a.dial(t)
	// From outside: to ask the agent would be activity.
	settles := func(what string) {
		var rss int
		eventually(t, what+" to be small", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			var size int
			if _, err := fmt.Sscan(string(b), &size, &rss); err != nil {
				t.Fatal(err)
			}
			rss *= os.Getpagesize()
			return rss <= limit
		})
		t.Logf("%s: %d KiB resident", what, rss>>10)
	}
	settles("an idle agent")
	s := a.terminal("s", "exec cat")
	s.WatchWaiting = true
	start(t, c, s)
	for i := range 100 {
		if err := c.Input(long(t), "s", fmt.Sprint(i), []byte("hello\n"), 1); err != nil {
			t.Fatal(err)
		}
	}
	event(t, c, waiting)
	settles("an agent with a session")
	start(t, c, a.sh("loud", "exec head -c 20000000 /dev/zero"))
	readAll(t, c, "loud")
	st, err := c.Stats(long(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at the end of 20 MB of output: %d KiB resident", st.GetAgentRss()>>10)
	settles("an agent after 20 MB of output")
	fi, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("program: %d bytes", fi.Size())
}

// reportMedian reports the median of what do takes.
func reportMedian(b *testing.B, do func(i int)) {
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		do(i)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkLinkRoundTrip(b *testing.B) {
	a := startProgram(b, plain, buildAgent(b), 0)
	c := a.dial(b)
	ctx := long(b)
	reportMedian(b, func(int) {
		if err := c.Ping(ctx); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkDialAndHello(b *testing.B) {
	a := startProgram(b, plain, buildAgent(b), 0)
	reportMedian(b, func(int) {
		c, err := cell.Dial(long(b), a.socket(), a.secret)
		if err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	})
}

func BenchmarkSessionStart(b *testing.B) {
	for _, terminal := range []bool{false, true} {
		b.Run(map[bool]string{false: "pipes", true: "terminal"}[terminal], func(b *testing.B) {
			a := startProgram(b, plain, buildAgent(b), 0)
			c := a.dial(b)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				s := a.session(fmt.Sprint(i), "/bin/true")
				if terminal {
					s.Terminal = &cellv1.TerminalSize{}
				}
				began := time.Now()
				start(b, c, s)
				took = append(took, time.Since(began))
				event(b, c, exited)
				if err := c.AckExit(long(b), s.SessionId); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "start-p50-µs")
		})
	}
}

func BenchmarkOutput(b *testing.B) {
	a := startProgram(b, plain, buildAgent(b), 0)
	c := a.dial(b)
	const size = 64 << 20
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint(i)
		start(b, c, a.sh(id, fmt.Sprintf("exec head -c %d /dev/zero", size)))
		r, err := c.ReadOutput(long(b), id, 0)
		if err != nil {
			b.Fatal(err)
		}
		for got := uint64(0); ; {
			f, err := r.Next()
			if err != nil {
				b.Fatal(err)
			}
			if f.GetEnd() != nil {
				break
			}
			if got += uint64(len(f.GetData().GetData())); got%(1<<20) < blockSize {
				_ = c.Ack(long(b), id, got)
			}
		}
		event(b, c, exited)
		_ = c.AckExit(long(b), id)
	}
}
