package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/retention"
	"github.com/airlock-host/airlock/host/internal/store"
)

// childEnv: this process is killed in the middle of a pass.
const childEnv = "AIRLOCK_TEST_RETENTION"

func TestMain(m *testing.M) {
	if at := os.Getenv(childEnv); at != "" {
		child(os.Args[len(os.Args)-1], at)
		return
	}
	goleak.VerifyTestMain(m)
}

var ctx = context.Background()

// place is a data directory with what lies beside the store: a file for each
// session and each result, as the engine keeps them.
type place struct {
	t     testing.TB
	dir   string
	store *store.Store
	heads *heads.Log
	held  map[string]bool
}

func (p *place) Holds(id string) bool { return p.held[id] }

func (p *place) Discard(id string, sessions []string) error {
	for _, name := range append([]string{"result-" + id}, sessions...) {
		if err := os.Remove(filepath.Join(p.dir, "beside", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func openPlace(t testing.TB, dir string, hook store.Hook) *place {
	p, err := openAt(dir, hook)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	return p
}

func openAt(dir string, hook store.Hook) (*place, error) {
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "heads", "host.key"))
	if err != nil {
		return nil, err
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: log, BlobOver: 4000, Ballast: -1, Hook: hook})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &place{dir: dir, store: s, heads: log, held: map[string]bool{}}, os.MkdirAll(filepath.Join(dir, "beside"), 0o700)
}

func (p *place) close() {
	p.t.Helper()
	if err := errors.Join(p.store.Close(), p.heads.Close()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) keeper(change func(*retention.Options)) *retention.Keeper {
	o := retention.Options{Store: p.store, Engine: p, Sign: p.heads.Sign, Log: hclog.NewNullLogger(),
		Rules: retention.Rules{After: 90 * 24 * time.Hour, States: []string{"done", "failed", "aborted"}, Dir: filepath.Join(p.dir, "archive")}}
	if change != nil {
		change(&o)
	}
	return retention.New(o)
}

// add stores a mission as a host leaves it; state "" leaves it running. big goes
// into its journal, beside the file if it is long.
func (p *place) add(id, state string, age time.Duration, big string) journal.Head {
	p.t.Helper()
	m, head := mission.Mission{ID: id}, journal.Genesis(id, uuid.NewString())
	at, session := time.Now().Add(-age), "session-"+id
	facts := append(mission.Open(mission.Opened{JournalUUID: head.JournalUUID, Origin: mission.OriginLocal, Agent: "a", Objective: "x", PayloadDigest: "digest-" + id}, at),
		mission.Starting{V: 1, Generation: 1, CellID: "c", Incarnation: 1, SessionID: session, Plugins: []mission.Build{{Ref: "runtime.command.shell", SHA256: "ab"}}},
		mission.Started{V: 1, Generation: 1, AgentRuntime: "command", SessionID: session},
		mission.Gapped{V: 1, What: "output", Note: big}) // the same payload in every mission that has it
	if state != "" {
		facts = append(facts, mission.Ended{V: 1, State: mission.State(state)})
	}
	b := store.Batch{Task: id, JournalUUID: head.JournalUUID}
	for _, f := range facts {
		text, err := json.Marshal(f)
		if err != nil {
			p.t.Fatal(err)
		}
		var ev journal.Event
		ev, head = head.Next(uuid.NewString(), at, f.Kind(), string(text))
		m.Apply(f, ev.Timestamp)
		b.Events = append(b.Events, ev)
	}
	data, err := json.Marshal(&m)
	b.Mission = &store.MissionRow{MissionID: id, Origin: "local", Agent: "a", State: string(m.State), Terminal: m.Terminal(), CreatedAt: at, UpdatedAt: at, Data: data}
	for _, name := range []string{"result-" + id, session} {
		err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, "beside", name), nil, 0o600))
	}
	if err = errors.Join(err, p.store.Commit(ctx, b)); err != nil {
		p.t.Fatal(err)
	}
	return head
}

const day = 24 * time.Hour

// where says that a mission is whole in the store, or whole in its bundle.
func (p *place) where(id string) string {
	p.t.Helper()
	_, err := p.store.Mission(ctx, id)
	if err == nil {
		if err := p.store.VerifyTask(ctx, id); err != nil {
			p.t.Errorf("%s: %v", id, err)
		}
		return "store"
	}
	if !errors.Is(err, store.ErrNotFound) {
		p.t.Fatal(err)
	}
	r, err := p.store.Retired(ctx, id)
	if err != nil {
		p.t.Errorf("%s is neither in the store nor retired: %v", id, err)
		return "lost"
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "heads", "host.key.pub"))
	if err != nil {
		p.t.Fatal(err)
	}
	key, err := record.ParseKey(text)
	if err != nil {
		p.t.Fatal(err)
	}
	f, err := os.Open(r.Bundle)
	if err != nil {
		p.t.Errorf("%s: %v", id, err)
		return "lost"
	}
	defer f.Close()
	got, err := evidence.Verify(f, &key)
	if err != nil || got.TaskID != id || got.Events != r.Head.Sequence || got.Digest != r.Head.Digest {
		p.t.Errorf("%s: its bundle: %+v, %v", id, got, err)
	}
	return "bundle"
}

func (p *place) files(pattern string) []string {
	list, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func TestOnlyWhatIsOverAndOldIsArchived(t *testing.T) {
	t.Parallel()
	p := openPlace(t, t.TempDir(), nil)
	defer p.close()
	shared := strings.Repeat("s", 5000)
	p.add("old-done", "done", 100*day, "")
	p.add("old-failed", "failed", 95*day, strings.Repeat("f", 5000))
	p.add("old-aborted", "aborted", 91*day, "")
	p.add("young", "done", 89*day, "")
	p.add("running", "", 100*day, "")
	p.add("held", "done", 100*day, "")
	p.held["held"] = true // owes revocations, say
	owing := p.add("owing", "done", 100*day, "")
	celled := p.add("celled", "done", 100*day, "")
	err := errors.Join(
		p.store.Commit(ctx, store.Batch{Task: "owing", Outbox: []store.OutboxItem{{MissionID: "owing", Sequence: owing.Sequence, Event: "mission.completed", TS: time.Now(), Terminal: true}}}),
		p.store.Commit(ctx, store.Batch{Cells: []store.CellRow{{CellID: "c", MissionID: "celled", State: "ending"}}}))
	if err != nil {
		t.Fatal(err)
	}
	_ = celled
	n, err := p.keeper(func(o *retention.Options) { o.Rules.States = []string{"done", "failed"} }).Pass(ctx)
	if err != nil || n != 2 {
		t.Fatalf("%d archived, %v", n, err)
	}
	for id, want := range map[string]string{"old-done": "bundle", "old-failed": "bundle", "old-aborted": "store", "young": "store", "running": "store", "held": "store", "owing": "store", "celled": "store"} {
		if got := p.where(id); got != want {
			t.Errorf("%s is in the %s, not in the %s", id, got, want)
		}
	}
	for _, gone := range []string{"beside/result-old-done", "beside/session-old-failed"} {
		if len(p.files(gone)) != 0 {
			t.Errorf("%s is left", gone)
		}
	}
	if len(p.files("beside/*-young")) != 2 || len(p.files("data/blobs/*/*")) != 0 {
		t.Error("what belongs to others is gone, or a payload file is left")
	}
	if events, err := p.store.Events(ctx, "old-done", 0, 10); !errors.Is(err, store.ErrNotFound) && len(events) > 0 {
		t.Errorf("%d events are left, %v", len(events), err)
	}
	if err := p.store.VerifyTask(ctx, "old-done"); !errors.Is(err, store.ErrRetired) {
		t.Errorf("the verification of a retired task: %v", err)
	}
	// The same payload file in two missions goes with the last of them.
	p.add("first", "done", 100*day, shared)
	p.add("second", "done", 10*day, shared)
	if _, err := p.keeper(nil).Pass(ctx); err != nil {
		t.Fatal(err)
	}
	if got := p.where("first") + " " + p.where("second"); got != "bundle store" {
		t.Error(got)
	}
	if _, err := p.keeper(func(o *retention.Options) { o.Rules.After = day }).Pass(ctx); err != nil || p.where("second") != "bundle" {
		t.Errorf("%v", err)
	}
}

// A journal that does not verify is evidence: it stays, and the others go on.
func TestADamagedJournalIsKept(t *testing.T) {
	t.Parallel()
	p := openPlace(t, t.TempDir(), nil)
	defer p.close()
	p.add("bad", "done", 100*day, strings.Repeat("b", 5000))
	p.add("good", "done", 99*day, "")
	blobs := p.files("data/blobs/*/*")
	if len(blobs) != 1 {
		t.Fatal(blobs)
	}
	if err := os.WriteFile(blobs[0], []byte(strings.Repeat("c", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := p.keeper(nil).Pass(ctx)
	if n != 1 || err == nil || !strings.Contains(err.Error(), `"bad"`) || !strings.Contains(err.Error(), "does not verify and is kept") {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := p.store.Mission(ctx, "bad"); err != nil {
		t.Error(err)
	}
	if p.where("good") != "bundle" {
		t.Error("the good one was not archived")
	}
}

func TestAFullArchiveKeepsTheMission(t *testing.T) {
	t.Parallel()
	p := openPlace(t, t.TempDir(), nil)
	defer p.close()
	p.add("m", "done", 100*day, "")
	_, err := p.keeper(func(o *retention.Options) {
		o.Hook = func(at retention.Point) error {
			if at == retention.PointWritten {
				return unix.ENOSPC
			}
			return nil
		}
	}).Pass(ctx)
	if !errors.Is(err, unix.ENOSPC) || p.where("m") != "store" || len(p.files("archive/*/*")) != 0 {
		t.Errorf("%v; left: %v", err, p.files("archive/*/*"))
	}
}

// Size pushes out what ended first, and the file gives the space back, while
// others commit.
func TestTheStoreShrinksWhileOthersCommit(t *testing.T) {
	t.Parallel()
	p := openPlace(t, t.TempDir(), nil)
	defer p.close()
	p.add("young", "failed", time.Minute, "")
	for i := range 60 { // most of it under the size that goes to a file of its own
		p.add(fmt.Sprintf("m-%02d", i), "done", 10*day-time.Duration(i)*time.Hour, strings.Repeat("x", 3900))
		p.grow(fmt.Sprintf("m-%02d", i))
	}
	before, _, err := p.store.Space(ctx)
	if err != nil {
		t.Fatal(err)
	}
	limit := before / 4
	stop := make(chan struct{})
	var wg sync.WaitGroup
	commits := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := p.store.SetMeta(ctx, "busy", fmt.Sprint(commits)); err != nil {
				t.Error(err)
				return
			}
			commits++
		}
	})
	n, err := p.keeper(func(o *retention.Options) { o.Rules.MaxSize = limit }).Pass(ctx)
	close(stop)
	wg.Wait()
	if err != nil || n == 0 || commits == 0 {
		t.Fatalf("%d archived, %d commits meanwhile, %v", n, commits, err)
	}
	used, free, err := p.store.Space(ctx)
	if err != nil || used > limit {
		t.Errorf("%d bytes are used of %d allowed, %v", used, limit, err)
	}
	if free > 5<<20 {
		t.Errorf("%d bytes of the file are free and were not given back (it had %d)", free, before)
	}
	if p.where("young") != "store" || p.where("m-00") != "bundle" {
		t.Error("the oldest did not go first, or what has just ended went too")
	}
}

// grow adds events to a mission's journal, so that there is something to remove.
func (p *place) grow(id string) {
	p.t.Helper()
	head, err := p.store.Head(ctx, id)
	if err != nil {
		p.t.Fatal(err)
	}
	b := store.Batch{Task: id}
	for range 40 {
		var ev journal.Event
		ev, head = head.Next(uuid.NewString(), time.Now(), journal.Gap, `{"v":1,"what":"output","note":"`+strings.Repeat("y", 3900)+`"}`)
		b.Events = append(b.Events, ev)
	}
	if err := p.store.Commit(ctx, b); err != nil {
		p.t.Fatal(err)
	}
}

// child makes a pass and kills itself at a point: "NAME", or "NAME/N" for the
// Nth time that it comes there.
func child(dir, at string) {
	name, nth, _ := strings.Cut(at, "/")
	left := 1
	if nth != "" {
		_, _ = fmt.Sscan(nth, &left)
	}
	var mu sync.Mutex
	hit := func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if point != name {
			return
		}
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	armed := false
	p, err := openAt(dir, func(point store.Point) error {
		if armed {
			hit(string(point))
		}
		return nil
	})
	if err == nil {
		armed = true // the start's own commits do not count
		_, err = p.keeper(func(o *retention.Options) {
			o.Hook = func(point retention.Point) error { hit(string(point)); return nil }
		}).Pass(ctx)
	}
	if err == nil {
		err = errors.Join(p.store.Close(), p.heads.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A kill anywhere leaves every mission whole in the store or whole in its
// bundle, and the next pass carries on.
func TestAKillAtEveryPointOfRetention(t *testing.T) {
	t.Parallel()
	var points []string
	for _, at := range retention.Points() {
		points = append(points, string(at), string(at)+"/2")
	}
	for _, at := range []store.Point{store.PointApplied, store.PointCommitted} {
		for _, nth := range []string{"/1", "/2", "/3", "/5", "/8", "/13"} {
			points = append(points, string(at)+nth)
		}
	}
	for _, at := range points {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := openPlace(t, dir, nil)
			ids := []string{"one", "two", "live"}
			p.add("one", "done", 100*day, strings.Repeat("1", 5000))
			p.add("two", "failed", 99*day, strings.Repeat("2", 5000))
			p.add("live", "", 99*day, strings.Repeat("1", 5000))
			p.close()
			cmd := exec.Command(os.Args[0], dir)
			cmd.Env = append(os.Environ(), childEnv+"="+at)
			text, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.Exited()) {
				t.Fatalf("%v\n%s", err, text)
			}
			p = openPlace(t, dir, nil)
			defer p.close()
			for _, id := range ids {
				p.where(id)
			}
			if _, err := p.keeper(nil).Pass(ctx); err != nil {
				t.Fatal(err)
			}
			if got := []string{p.where("one"), p.where("two"), p.where("live")}; !slices.Equal(got, []string{"bundle", "bundle", "store"}) {
				t.Error(got)
			}
			if left := p.files("archive/*/*.part"); len(left) != 0 {
				t.Error(left)
			}
			if left := p.files("beside/*"); len(left) != 2 {
				t.Error(left)
			}
			if left, err := p.store.Unswept(ctx, 10); err != nil || len(left) != 0 {
				t.Error(left, err)
			}
			// The live mission's payload file is not one's own.
			if blobs := p.files("data/blobs/*/*"); len(blobs) != 1 {
				t.Errorf("payload files: %v", blobs)
			}
		})
	}
}
