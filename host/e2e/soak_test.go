package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample is what a host holds at a moment of a soak.
type sample struct {
	Minutes    float64 `json:"minutes"`
	RSSMB      float64 `json:"rss_mb"`
	FDs        float64 `json:"fds"`
	Sockets    float64 `json:"sockets"`
	Goroutines float64 `json:"goroutines"`
	Cgroups    float64 `json:"cgroups"`
	Mounts     float64 `json:"mounts"`
	Files      float64 `json:"temp_files"` // below the run directory and the system's temporary one
	StoreMB    float64 `json:"store_mb"`
	Missions   float64 `json:"missions"`
}

// TestSoak runs mixed missions with faults for AIRLOCK_SOAK minutes, or for a few
// rounds, and looks at what the host holds whenever all of them are over: it must
// not grow. Each look is one JSON line in the log.
func TestSoak(t *testing.T) {
	minutes := number(t, "AIRLOCK_SOAK", 0)
	seed := uint64(number(t, "AIRLOCK_SEED", int(time.Now().UnixNano()&0x7fffffff))) //nolint:gosec // a seed
	t.Logf("AIRLOCK_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newChaos(t)
	began := time.Now()
	var samples []sample
	missions := 0
	for round := 0; round < 3 || time.Since(began) < time.Duration(minutes)*time.Minute; round++ {
		for i := range 6 {
			move := []string{"mission", "fails", "abort"}[i%3]
			// One fault in a round; the host lives through a soak, so that what it holds
			// can be compared.
			if i == 3 {
				move = []string{"kill-driver", "kill-runtime", "kill-cell", "orchestrator"}[rng.IntN(4)]
			}
			c.step(move)
		}
		missions += len(c.missions)
		c.judge()
		c.untilQuiet()
		c.until("the plugins are back", c.healthy)
		s := c.look(time.Since(began), missions)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", text)
		samples = append(samples, s)
	}
	c.flat(samples)
}

// flat compares the first look with the last ones. What is counted must be where
// it was, with a little room for what is under way; memory and the store may grow
// at first, so they are held to a slope only where there were minutes to see one.
func (c *chaos) flat(samples []sample) {
	c.t.Helper()
	first, last := samples[0], samples[len(samples)-1]
	for name, grown := range map[string]float64{
		// The logs of the 32 sessions that ended last stay open for readers.
		"fds": last.FDs - first.FDs - 32, "sockets": last.Sockets - first.Sockets, "goroutines": (last.Goroutines - first.Goroutines) / 3,
		"control groups": last.Cgroups - first.Cgroups, "mounts": last.Mounts - first.Mounts, "temporary files": last.Files - first.Files,
	} {
		if (name == "control groups" || name == "mounts") && last.Minutes < 10 {
			continue // the machine's; other tests run beside a short soak
		}
		if grown > 8 {
			c.t.Errorf("%s grew by %.0f in %.1f minutes: %+v, then %+v", name, grown, last.Minutes, first, last)
		}
	}
	if last.Minutes < 10 {
		return
	}
	half := samples[len(samples)/2:]
	if s := slope(half, func(s sample) float64 { return s.RSSMB }); s*60 > 10 {
		c.t.Errorf("memory grows by %.1f MB an hour", s*60)
	}
	ends := half[len(half)-1].Missions - half[0].Missions
	if grown := half[len(half)-1].StoreMB - half[0].StoreMB; ends > 0 && grown/ends > 0.064 {
		c.t.Errorf("the store grows by %.0f KB a mission", 1000*grown/ends)
	}
}

// slope is that of the line through the samples, a minute.
func slope(samples []sample, of func(sample) float64) float64 {
	var n, x, y, xx, xy float64
	for _, s := range samples {
		v := of(s)
		n, x, y, xx, xy = n+1, x+s.Minutes, y+v, xx+s.Minutes*s.Minutes, xy+s.Minutes*v
	}
	if d := n*xx - x*x; d != 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

// look counts what the host holds.
func (c *chaos) look(at time.Duration, missions int) sample {
	c.t.Helper()
	s := sample{Minutes: at.Minutes(), Missions: float64(missions)}
	proc := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(v, &s.RSSMB)
			s.RSSMB /= 1024
		}
	}
	fds, _ := filepath.Glob(proc + "fd/*")
	s.FDs = float64(len(fds))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
			s.Sockets++
		}
	}
	if f, err := os.Open(proc + "mountinfo"); err == nil {
		for sc := bufio.NewScanner(f); sc.Scan(); {
			s.Mounts++
		}
		_ = f.Close()
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "airlock") {
			s.Cgroups++
		}
		return nil
	})
	s.Files = filesIn(filepath.Join(c.dir, "run")) + filesIn(filepath.Join(c.dir, "data", "volumes"))
	for _, name := range []string{"missions.db", "missions.db-wal"} {
		if info, err := os.Stat(filepath.Join(c.dir, "data", name)); err == nil {
			s.StoreMB += float64(info.Size()) / (1 << 20)
		}
	}
	s.Goroutines = c.metric("go_goroutines")
	return s
}

func filesIn(dir string) (n float64) {
	_ = filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil })
	return n
}

// metric reads one of the host's metrics.
func (c *chaos) metric(name string) (v float64) {
	c.t.Helper()
	resp, err := c.api.Get("http://localhost/metrics")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("/metrics: %s", resp.Status)
	}
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), name+" "); ok {
			_, _ = fmt.Sscan(rest, &v)
		}
	}
	return v
}
