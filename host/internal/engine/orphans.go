package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// reapEvery is how often every driver is asked for cells that nobody knows.
const reapEvery = 30 * time.Second

// orphan is a cell that runs and that the store does not know, or whose mission
// it cannot tell of.
type orphan struct {
	Instance string    `json:"instance"`
	First    time.Time `json:"first_seen"`
	Why      string    `json:"why"`
}

// orphans are those that were seen, by cell id, on disk too, so that orphan_ttl
// does not begin anew with the host.
type orphans struct {
	mu   sync.Mutex
	seen map[string]orphan
	held map[string]string // cells of the store that are treated as orphans, with why
}

// hold has a cell that the store knows treated as an orphan.
func (o *orphans) hold(cellID, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil {
		o.held = map[string]string{}
	}
	o.held[cellID] = why
}

// why says why a cell is an orphan; empty: it is none.
func (o *orphans) why(cellID string, known bool) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if why := o.held[cellID]; why != "" || known {
		return why
	}
	return "the store does not know it"
}

// sight notes a cell; first is when it was seen first, fresh that it is now.
func (o *orphans) sight(cellID, ref, why string, now time.Time) (first time.Time, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, before := o.seen[cellID]
	if !before {
		was.First = now.UTC()
	}
	o.seen[cellID] = orphan{ref, was.First, why}
	return was.First, !before
}

// gone forgets the cells of an instance that are not there or not orphans any
// more.
func (o *orphans) gone(ref string, there map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.seen, func(id string, c orphan) bool { return c.Instance == ref && !there[id] })
}

// Orphans says in words which cells are orphans and what becomes of them; the
// first few one by one.
func (e *Engine) Orphans(most int) (lines []string) {
	e.orphans.mu.Lock()
	defer e.orphans.mu.Unlock()
	ttl := e.conf.Load().OrphanTTL
	for i, id := range slices.Sorted(maps.Keys(e.orphans.seen)) {
		if i == most {
			return append(lines, fmt.Sprintf("%d more cells are frozen, each for a reason that is in the host's log", len(e.orphans.seen)-most))
		}
		c := e.orphans.seen[id]
		lines = append(lines, fmt.Sprintf("cell %s of %s is frozen: %s; it is destroyed at %s (orphan_ttl). If the store was put back from an older copy, stop the host and put the newer one back before",
			id, c.Instance, c.Why, c.First.Add(ttl).Format(time.RFC3339)))
	}
	return lines
}

func (e *Engine) orphansPath() string { return filepath.Join(e.opts.Config.DataDir, "orphans.json") }

func (e *Engine) loadOrphans() {
	e.orphans.mu.Lock()
	defer e.orphans.mu.Unlock()
	e.orphans.seen = map[string]orphan{}
	text, err := os.ReadFile(e.orphansPath())
	if err == nil {
		err = json.Unmarshal(text, &e.orphans.seen)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("since when cells are orphans cannot be read; orphan_ttl begins anew", "error", err)
	}
}

func (e *Engine) saveOrphans() {
	e.orphans.mu.Lock()
	text, err := json.Marshal(e.orphans.seen)
	e.orphans.mu.Unlock()
	if was, rerr := os.ReadFile(e.orphansPath()); rerr == nil && string(was) == string(text) || rerr != nil && string(text) == "{}" {
		return
	}
	if err == nil {
		err = renameio.WriteFile(e.orphansPath(), text, 0o600)
	}
	if err != nil {
		e.log.Warn("since when cells are orphans could not be written; orphan_ttl may begin anew with the host", "error", err)
	}
}

// contradicts says why the store must not be believed that a cell's mission is
// over: its row is gone or cannot be read, or it says so and the journal does
// not. Empty: it may be destroyed.
func (e *Engine) contradicts(ctx context.Context, c *cells.Cell) string {
	if c.MissionID == "" || c.State == cells.StateEnding {
		return ""
	}
	r, err := e.opts.Store.Mission(ctx, c.MissionID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Sprintf("its mission %q is not in the store", c.MissionID)
	case err != nil:
		return fmt.Sprintf("its mission %q cannot be read (%v)", c.MissionID, err)
	}
	m, err := fromRow(r)
	switch {
	case err != nil:
		return fmt.Sprintf("the stored state of its mission %q cannot be read", c.MissionID)
	case !m.Terminal() && r.Terminal:
		return fmt.Sprintf("its mission %q counts as ended, and its state says that it is %s", c.MissionID, m.State)
	case !m.Terminal() || e.QuarantineReceipt(m.ID) != nil:
		return ""
	}
	for after := uint64(0); ; {
		page, err := e.opts.Store.Events(ctx, m.ID, after, 100)
		if err != nil {
			return fmt.Sprintf("the journal of its mission %q cannot be read (%v)", m.ID, err)
		}
		if len(page) == 0 {
			return fmt.Sprintf("its mission %q is stored as %s, and its journal does not say that it has ended", m.ID, m.State)
		}
		for i := range page {
			if page[i].Kind == journal.Ended {
				return ""
			}
		}
		after = page[len(page)-1].Sequence
	}
}

// reap looks for orphans, at once and then now and then: they are frozen and
// reported, and destroyed after orphan_ttl (the store may have been rolled back).
func (e *Engine) reap(ctx context.Context) {
	pause := 100 * time.Millisecond
	for {
		e.retryEnding(ctx)
		all := true // drivers have answered
		for _, ref := range e.isolations() {
			all = e.reapInstance(ctx, ref) == nil && all
		}
		e.saveOrphans()
		if pause = min(2*pause, reapEvery); all {
			pause = reapEvery
		}
		if wait(ctx, pause) != nil {
			return
		}
	}
}

func (e *Engine) reapInstance(ctx context.Context, ref string) error {
	driver, err := e.opts.Plugins.Isolation(ref)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reapEvery)
	defer cancel()
	// A cell has its row before it is made and until it is gone: one that has none
	// before and none after the list is an orphan.
	before, err := e.knownCells(ctx)
	if err != nil {
		return err
	}
	list, err := listed(ctx, driver, e.opts.HostID)
	if err != nil {
		return err
	}
	after, err := e.knownCells(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, c := range list {
		id := c.GetRef().GetCellId()
		if why := e.orphans.why(id, before[id] || after[id]); why != "" {
			there[id] = !e.orphaned(ctx, driver, c, ref, why)
		}
	}
	e.orphans.gone(ref, there)
	return nil
}

// listed asks a driver for all of its cells.
func listed(ctx context.Context, driver pluginv1.IsolationClient, hostID string) (list []*pluginv1.ListResponse, err error) {
	stream, err := driver.List(ctx, &pluginv1.ListRequest{HostId: hostID})
	for err == nil {
		var c *pluginv1.ListResponse
		if c, err = stream.Recv(); err == nil {
			list = append(list, c)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// orphaned freezes an orphan, or destroys it when its time is over; it says
// whether it is gone.
func (e *Engine) orphaned(ctx context.Context, driver pluginv1.IsolationClient, c *pluginv1.ListResponse, ref, why string) bool {
	id, ttl := c.GetRef().GetCellId(), e.conf.Load().OrphanTTL
	first, fresh := e.orphans.sight(id, ref, why, e.now())
	log := e.log.With("cell", id, "instance", ref, "why", why)
	if e.now().Sub(first) > ttl {
		log.Warn("orphaned cell is destroyed", "first_seen", first)
		_, err := driver.Destroy(ctx, &pluginv1.DestroyRequest{Ref: c.GetRef(), Force: true})
		if err == nil {
			err = e.opts.Store.Commit(ctx, store.Batch{DropCells: []string{id}})
		}
		if err != nil {
			log.Error("orphaned cell could not be destroyed yet", "error", err)
		}
		return err == nil
	}
	if fresh {
		log.Warn("orphaned cell is frozen", "destroyed_after", ttl)
	}
	if c.GetState() == pluginv1.CellState_CELL_STATE_RUNNING {
		if _, err := driver.Pause(ctx, &pluginv1.PauseRequest{Ref: c.GetRef()}); err != nil {
			log.Error("orphaned cell could not be frozen yet", "error", err)
		}
	}
	return false
}
