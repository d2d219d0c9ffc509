package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/failpoint"
)

// number reads a setting of the long modes: a number, or few.
func number(t *testing.T, name string, few int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return few
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, not a number", name, v)
	}
	return n
}

// chaos is a host under faults, with a model of what must be true of each of its
// missions whatever happens.
type chaos struct {
	*rig
	n        int
	missions []expectation
	tasks    []string // of harnesses
	seen     map[string][]json.RawMessage
	issuer   *issuer // takes access back; nil: there is none
	disk     string  // where the data directory lies; "": not on a disk of its own
}

// expectation is what may become of one mission.
type expectation struct {
	id        string
	code      int  // of its process
	aborted   bool // an abort was asked for
	exposed   bool // its cell may have been killed
	forgotten bool // the orchestrator has lost its memory since
	taken     bool // its dispatch was answered with 202
	quiet     bool // it leaves no side effects to count
}

// moves are the steps of a schedule; those that are there twice come twice as
// often.
func moves() []string {
	all := []string{
		"mission", "mission", "mission", "mission", "fails", "abort",
		"kill-host", "stop-host", "kill-driver", "kill-runtime", "kill-revoker", "kill-cell", "orchestrator", "kill-orchestrator",
		"clock:61m", "clock:-61m", "fail:store.begun", "fail:store.applied", "fail:store.committed", "kill-at:?", "kill-at:?", "kill-at:?", "kill-at:?",
	}
	if os.Geteuid() == 0 { // a disk of its own takes a mount
		all = append(all, "full-disk", "full-disk")
	}
	return all
}

// driverMoves are those of a host with every driver.
func driverMoves() []string {
	return []string{
		"mission:docker", "mission:qemu-kvm", "mission:host-supervisor", "fails:docker",
		"kill-dockerd", "kill-dockerd", "kill-qemu", "kill-qemu", "kill-host", "stop-host", "kill-plugin:docker", "kill-plugin:qemu-kvm",
	}
}

// newChaos starts a host for a schedule; the rig looks for orphans at the end.
// The time limits are there for clocks that jump.
func newChaos(t *testing.T) *chaos {
	i := newIssuer(t)
	c := &chaos{issuer: i, seen: map[string][]json.RawMessage{}}
	key := filepath.Join(t.TempDir(), "issuer.key")
	write(t, key, issuerSecret, 0o600)
	c.rig = newRig(t, settings{
		slots:      6,
		agent:      "revokers = [revoker.webhook.issuer]\n  governance {\n    max_resumes = 1000\n    budget {\n      wall = \"30m\"\n      idle = \"30m\"\n    }\n  }",
		policy:     "rule \"asks\" {\n  tool = \"refund\"\n  effect = \"pause\"\n}",
		extra:      revokers(filepath.Dir(key), map[string]*issuer{"issuer": i}),
		runtime:    prompts,
		governance: "approval_timeout = \"30m\"",
		before:     c.prepare,
	})
	return c
}

// prepare gives the host its failpoints and a disk of its own.
func (c *chaos) prepare(r *rig) {
	c.rig = r
	r.env = []string{failpoint.File + "=" + c.ordersFile()}
	c.order()
	if os.Geteuid() != 0 {
		return
	}
	disk, err := os.MkdirTemp("", "aldisk")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128m,mode=0711"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { // after the rig's own
		if err := unix.Unmount(disk, 0); err != nil {
			r.t.Error(err)
			_ = unix.Unmount(disk, unix.MNT_DETACH)
		}
		_ = os.Remove(disk)
	})
	if err := os.Symlink(disk, filepath.Join(r.dir, "data")); err != nil {
		r.t.Fatal(err)
	}
	c.disk = disk
}

// newDriverChaos is a host with every driver.
func newDriverChaos(t *testing.T) *chaos {
	c := &chaos{seen: map[string][]json.RawMessage{}}
	c.rig = driverRig(t, "governance {\n    max_resumes = 1000\n  }", "")
	t.Cleanup(func() { // before what looks for leftovers
		if err := needs.engine.Revive(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestAScheduleOfKills runs random schedules of kills: AIRLOCK_SCHEDULES of them,
// or one. A seed makes the same schedule again (AIRLOCK_SEED), and so does its
// text (AIRLOCK_SCHEDULE, steps separated by commas); with AIRLOCK_MINIMISE=1 a
// schedule that fails is made as short as it fails with. It is kept in
// testdata/schedules, which TestSchedulesThatFailedOnce runs.
func TestAScheduleOfKills(t *testing.T) {
	schedules(t, "TestAScheduleOfKills", "AIRLOCK_SCHEDULES", moves(), 12, func(t *testing.T, steps []string) { newChaos(t).run(steps) })
}

// TestAScheduleOfKillsInEveryDriver is the same for a host with three drivers
// whose engine and VMs are killed too: AIRLOCK_DRIVER_SCHEDULES of them, or one.
// There is a mission in each.
func TestAScheduleOfKillsInEveryDriver(t *testing.T) {
	schedules(t, "TestAScheduleOfKillsInEveryDriver", "AIRLOCK_DRIVER_SCHEDULES", driverMoves(), 4, func(t *testing.T, steps []string) {
		newDriverChaos(t).run(append([]string{"mission:docker", "mission:qemu-kvm", "mission:host-supervisor"}, steps...))
	})
}

// TestSchedulesThatFailedOnce runs what is kept of schedules that failed.
func TestSchedulesThatFailedOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/schedules")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		steps, _, _ := strings.Cut(line, "#")
		if steps = strings.TrimSpace(steps); steps == "" {
			continue
		}
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			newChaos(t).run(strings.Split(steps, ","))
		})
	}
}

func schedules(t *testing.T, test, count string, moves []string, length int, run func(*testing.T, []string)) {
	t.Helper()
	if text := os.Getenv("AIRLOCK_SCHEDULE"); text != "" {
		run(t, strings.Split(text, ","))
		return
	}
	seed := uint64(number(t, "AIRLOCK_SEED", int(time.Now().UnixNano()&0x7fffffff))) //nolint:gosec // a seed
	for i := range number(t, count, 1) {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // an index
		var steps []string
		for range length {
			move := moves[rng.IntN(len(moves))]
			if p := ordinary(); move == "kill-at:?" {
				move = "kill-at:" + string(p[rng.IntN(len(p))])
			}
			steps = append(steps, move)
		}
		name := fmt.Sprintf("seed %d schedule %d", seed, i)
		ok := t.Run(name, func(t *testing.T) {
			t.Logf("%s: AIRLOCK_SCHEDULE=%s", name, strings.Join(steps, ","))
			run(t, steps)
		})
		if !ok && os.Getenv("AIRLOCK_MINIMISE") == "1" {
			t.Errorf("the shortest that fails: AIRLOCK_SCHEDULE=%s", strings.Join(minimise(test, steps), ","))
		}
	}
}

// minimise takes steps out of a schedule for as long as it fails without them.
func minimise(test string, steps []string) []string {
	for i := 0; i < len(steps); {
		shorter := slices.Delete(slices.Clone(steps), i, i+1)
		cmd := exec.Command(os.Args[0], "-test.run", "^"+test+"$")
		cmd.Env = append(os.Environ(), "AIRLOCK_SCHEDULE="+strings.Join(shorter, ","), "AIRLOCK_BIN="+bin, "AIRLOCK_RACE=")
		if len(shorter) > 0 && cmd.Run() != nil {
			steps = shorter
			continue
		}
		i++
	}
	return steps
}

func (c *chaos) run(steps []string) {
	for _, move := range steps {
		began := time.Now()
		c.step(move)
		c.t.Logf("%-40s %.1f s", move, time.Since(began).Seconds())
	}
	c.judge()
}
