package engine_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

const (
	crashDirEnv  = "AIRLOCK_CRASH_DIR"
	crashLifeEnv = "AIRLOCK_CRASH_LIFE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		if err := crashChild(dir, os.Getenv(crashLifeEnv)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// life is one life of the host: what happens in it is drawn from its seed, and
// it ends by kill -9 at a point of store, heads, issuer or judge, when that is
// met for the n-th time, or after a while. The last life has no faults: it stops
// everything and ends by itself.
type life struct {
	N     int
	Seed  uint64
	Point string
	Nth   int
	After time.Duration
	Last  bool
}

// killPoints are where a life can end.
func killPoints() []string {
	points := []string{"", "grant.asked", "grant.given", "revoke.asked", "revoke.done", "judge.asked"}
	for _, p := range store.Points() {
		if p != store.PointBeforeCheckpoint && p != store.PointAfterCheckpoint { // no life is long enough for them
			points = append(points, string(p))
		}
	}
	for _, p := range heads.Points() {
		if p != heads.BeforeCompact && p != heads.AfterArchive && p != heads.AfterCompact {
			points = append(points, string(p))
		}
	}
	// Of the engine's those that such a life comes by; TestAKillAtEveryNamedPoint
	// walks all that a whole host does.
	for _, kind := range []journal.Kind{journal.TaskOpened, journal.Starting, journal.Started, journal.Proposed, journal.Decision,
		journal.Approval, journal.Executed, journal.Completed, journal.Stop, journal.StopAcknowledged, journal.Granted,
		journal.RevocationStarted, journal.RevocationResult, journal.Restarted, journal.Ended} {
		points = append(points, string(failpoint.Before(kind)), string(failpoint.After(kind)))
	}
	return points
}

// schedule draws the lives of one history from its seed.
func schedule(seed uint64) []life {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's dice
	points := killPoints()
	var lives []life
	for n := range 1 + rng.IntN(3) {
		l := life{N: n, Seed: rng.Uint64(), Point: points[rng.IntN(len(points))], Nth: 1 + rng.IntN(25), After: time.Duration(20+rng.IntN(400)) * time.Millisecond}
		if l.Point != "" { // mostly it is met before
			l.After += 500 * time.Millisecond
		}
		lives = append(lives, l)
	}
	return append(lives, life{N: len(lives), Seed: rng.Uint64(), Last: true})
}

// TestRandomCrashSchedules lets hosts live through random histories: proposals,
// approvals that are answered twice at once, dispatches that are tried twice,
// pauses, stops, restarts, missions with access, revokers that fail, crash or
// hang, a policy plugin that hangs, and kill -9 at any point. Then the journals
// are read by a model that knows only what must be true: no dispatch without a
// journalled decision, none after a stop, no approval used twice, no access
// left, nothing lost that was answered.
//
// AIRLOCK_CRASH_SCHEDULES says how many (make crash: 1,000), AIRLOCK_CRASH_SEED
// the first seed; a seed that is told of a failure gives the same dice again.
func TestRandomCrashSchedules(t *testing.T) {
	t.Parallel()
	count, first := number(t, "AIRLOCK_CRASH_SCHEDULES", 30), rand.Uint64()>>1
	if text := os.Getenv("AIRLOCK_CRASH_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d schedules from seed %d", count, first)
	var sum totals
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for seed := range seeds {
				if !t.Failed() {
					runSchedule(t, seed, &sum)
				}
			}
		})
	}
	for i := range count {
		seeds <- first + uint64(i)
	}
	close(seeds)
	wg.Wait()
	t.Logf("%d lives were killed, %d at their point; %d tasks, %d events, %d dispatches, %d approvals, %d stops, %d grants, %d pieces of access, %d answers of issuers",
		sum.killed.Load(), sum.atPoint.Load(), sum.tasks.Load(), sum.events.Load(), sum.dispatches.Load(), sum.approvals.Load(), sum.stops.Load(), sum.grants.Load(), sum.access.Load(), sum.issuer.Load())
	if count >= 20 && (sum.dispatches.Load() == 0 || sum.stops.Load() == 0 || sum.grants.Load() == 0 || sum.atPoint.Load() == 0) ||
		count >= 200 && (sum.approvals.Load() == 0 || sum.access.Load() == 0) {
		t.Error("the schedules try too little")
	}
}

// totals show that the schedules try what they are for.
type totals struct {
	killed, atPoint, tasks, events, dispatches, approvals, stops, grants, access, issuer atomic.Int64
}

func number(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// runSchedule runs one history to its end and has it judged.
func runSchedule(t *testing.T, seed uint64, sum *totals) {
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Error(err)
		return
	}
	var told []line
	fail := func(format string, args ...any) {
		t.Errorf("schedule %d (AIRLOCK_CRASH_SEED=%d AIRLOCK_CRASH_SCHEDULES=1, kept in %s): %s", seed, seed, dir, fmt.Sprintf(format, args...))
	}
	for _, l := range schedule(seed) {
		lines, killed, err := live(dir, l)
		told = append(told, lines...)
		if err != nil {
			fail("life %+v: %v", l, err)
			return
		}
		if killed {
			sum.killed.Add(1)
		}
		if n := len(lines); n > 0 && lines[n-1].verb == "at" {
			sum.atPoint.Add(1)
		}
	}
	before := t.Failed()
	judge(dir, told, sum, fail)
	if before || !t.Failed() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// line is what a child told, before or after it did something.
type line struct {
	verb string
	args []string
}

// live runs one life and gives what it told.
func live(dir string, l life) (told []line, killed bool, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, false, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, false, err
	}
	log, err := os.Create(filepath.Join(dir, fmt.Sprintf("life-%d.log", l.N)))
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, crashLifeEnv+"="+string(text))
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	for sc := bufio.NewScanner(out); sc.Scan(); {
		var words []string
		if json.Unmarshal(sc.Bytes(), &words) != nil || len(words) == 0 {
			break // the line was cut by the kill
		}
		told = append(told, line{words[0], words[1:]})
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && !l.Last {
		return told, true, nil
	}
	if err == nil && !l.Last {
		return told, false, errors.New("it ended by itself")
	}
	if err != nil {
		stderr, _ := os.ReadFile(log.Name())
		return told, false, fmt.Errorf("it ended with %w\n%s", err, stderr[max(0, len(stderr)-4000):])
	}
	return told, false, nil
}
