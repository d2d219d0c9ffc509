package workflow_test

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

var ctx = context.Background()

// memory is a Store in memory. It runs all work twice, as a store may.
type memory struct {
	mu       sync.Mutex
	rows     map[workflow.Table][]workflow.Row
	keys     []workflow.KeyRow
	reported []*workflow.Progress
	fail     error // of the next commit
	unsure   bool  // the failing commit is carried out all the same
}

func newMemory() *memory { return &memory{rows: map[workflow.Table][]workflow.Row{}} }

var errDisk = errors.New("disk")

func (m *memory) Update(_ context.Context, _ workflow.Owner, work func(workflow.Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := work(&memTx{memory: m}); err != nil {
		return err
	}
	tx := &memTx{memory: m}
	if err := work(tx); err != nil {
		return err
	}
	err := m.fail
	m.fail = nil
	if err == nil || m.unsure {
		for _, do := range tx.writes {
			do()
		}
	}
	return err
}

func (m *memory) Progress(ctx context.Context, o workflow.Owner, work func(workflow.Tx) (*workflow.Progress, error)) error {
	var p *workflow.Progress
	err := m.Update(ctx, o, func(tx workflow.Tx) (err error) {
		p, err = work(tx)
		return err
	})
	if err == nil && p != nil {
		m.reported = append(m.reported, p)
	}
	return err
}

func (m *memory) View(_ context.Context, f func(workflow.Reader) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m)
}

func (m *memory) Uncertain(err error) bool { return errors.Is(err, errDisk) && m.unsure }

func (m *memory) Get(t workflow.Table, id string) (*workflow.Row, error) {
	for _, r := range m.rows[t] {
		if r.ID == id {
			return &r, nil
		}
	}
	return nil, nil
}

func (m *memory) List(q workflow.Query) ([]workflow.Row, error) {
	var out []workflow.Row
	for _, r := range m.rows[q.Table] {
		ok := map[workflow.By]bool{workflow.ByOwner: r.Owner == q.Owner, workflow.ByParent: r.Parent == q.Key,
			workflow.ByRef: r.Ref == q.Key && r.Owner == q.Owner, workflow.ByState: r.State == q.Key}[q.By]
		if ok && (!q.Open || r.State != "") {
			out = append(out, r)
		}
	}
	if q.Last {
		slices.Reverse(out)
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out, nil
}

func (m *memory) Count(q workflow.Query) (int, error) {
	rows, err := m.List(q)
	return len(rows), err
}

func (m *memory) Key(owner [32]byte, op string, key [32]byte) (*workflow.KeyRow, error) {
	for _, k := range m.keys {
		if k.Owner == owner && k.Operation == op && k.KeyHash == key {
			return &k, nil
		}
	}
	return nil, nil
}

type memTx struct {
	*memory
	writes []func()
}

func (t *memTx) Insert(r workflow.Row) {
	t.writes = append(t.writes, func() { t.rows[r.Table] = append(t.rows[r.Table], r) })
}

func (t *memTx) Update(r workflow.Row) {
	t.writes = append(t.writes, func() {
		for i, old := range t.rows[r.Table] {
			if old.ID == r.ID && old.Owner == r.Owner {
				old.State, old.Data = r.State, r.Data
				t.rows[r.Table][i] = old
				return
			}
		}
		panic("a row is changed that is not there: " + r.ID)
	})
}

func (t *memTx) InsertKey(k workflow.KeyRow) {
	t.writes = append(t.writes, func() { t.keys = append(t.keys, k) })
}

// snapshot is everything that is stored, to compare.
func (m *memory) snapshot() (map[workflow.Table][]workflow.Row, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[workflow.Table][]workflow.Row{}
	for t, rows := range maps.All(m.rows) {
		out[t] = slices.Clone(rows)
	}
	return out, len(m.keys)
}

// world is a keeper with a clock and ids that a test owns.
type world struct {
	t        testing.TB
	mem      *memory
	k        *workflow.Keeper
	at       time.Time
	governed workflow.GovernedCalls
	owner    workflow.Owner
	dead     error
}

type counter struct{ n uint64 }

func (c *counter) Read(p []byte) (int, error) {
	c.n++
	clear(p)
	binary.BigEndian.PutUint64(p, c.n)
	return len(p), nil
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, mem: newMemory(), at: time.UnixMilli(1_800_000_000_000), owner: "m-1"}
	w.k = workflow.New(workflow.Options{Store: w.mem, Key: []byte("0123456789abcdef0123456789abcdef"), Rand: &counter{},
		Now:      func() time.Time { return w.at },
		Governed: func(context.Context, workflow.Owner) (workflow.GovernedCalls, error) { return w.governed, nil },
		Alive:    func(workflow.Owner) error { return w.dead }})
	return w
}

func (w *world) by() workflow.Caller { return workflow.Caller{Owner: w.owner} }

// observe lets the mission's workflow follow a fact.
func (w *world) observe(ev workflow.MissionEvent, m workflow.Mission) {
	w.t.Helper()
	err := w.mem.Update(ctx, w.owner, func(tx workflow.Tx) error { return w.k.Observe(tx, w.owner, ev, m) })
	if err != nil {
		w.t.Fatal(err)
	}
}

// mission starts a mission and gives its context.
func (w *world) mission() workflow.MissionContext {
	w.t.Helper()
	w.observe(workflow.MissionStarting, workflow.Mission{Agent: "agent-01", Objective: "build it", Completion: "it is built", Generation: 1})
	w.observe(workflow.MissionStarted, workflow.Mission{Generation: 1})
	return w.context()
}

func (w *world) context() workflow.MissionContext {
	w.t.Helper()
	return must(w.k.Context(ctx, w.by()))(w.t)
}

// must gives a result or ends the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ptr[T any](v T) *T { return &v }

// wantKind checks what kind of error it is, and that nothing was stored.
func (w *world) refused(kind string, do func() error) {
	w.t.Helper()
	rows, keys := w.mem.snapshot()
	err := do()
	if got := workflow.KindOf(err); got != kind {
		w.t.Errorf("%v, want %s", err, kind)
	}
	after, keysAfter := w.mem.snapshot()
	if keys != keysAfter || !equalRows(rows, after) {
		w.t.Errorf("%s has changed something", kind)
	}
}

func equalRows(a, b map[workflow.Table][]workflow.Row) bool {
	return maps.EqualFunc(a, b, func(x, y []workflow.Row) bool {
		return slices.EqualFunc(x, y, func(p, q workflow.Row) bool {
			return p.ID == q.ID && p.State == q.State && string(p.Data) == string(q.Data)
		})
	})
}
