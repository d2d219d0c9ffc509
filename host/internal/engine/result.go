package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/result"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

const (
	// quietWait bounds the kill of what a mission's process has left running.
	quietWait = 5 * time.Second
	// collectWait is how long the end of a mission waits for its files; they are
	// collected to the end all the same, before the cell is destroyed.
	collectWait = 15 * time.Second
	// filesWait is how long a reader waits for files that are being collected.
	filesWait = 20 * time.Second
	// maxArtifacts and maxArtifactBytes bound what the end of a mission lists.
	maxArtifacts     = 50
	maxArtifactBytes = 16 << 10
)

// results collects what missions changed (rulings 33).
type results struct {
	store *result.Store

	mu      sync.Mutex
	running map[string]*collecting // by cell
}

// collecting is one collection that runs.
type collecting struct {
	done     chan struct{}
	manifest *result.Manifest
	err      error
}

func newResults(dataDir string, now func() time.Time) *results {
	return &results{store: &result.Store{Dir: filepath.Join(dataDir, "results"), Now: now}, running: map[string]*collecting{}}
}

// collect begins a collection or joins the one that runs for the cell.
func (e *Engine) collect(c *cells.Cell, job result.Job) *collecting {
	r := e.results
	r.mu.Lock()
	defer r.mu.Unlock()
	if col := r.running[c.ID]; col != nil {
		return col
	}
	col := &collecting{done: make(chan struct{})}
	r.running[c.ID] = col
	e.goRun(func(ctx context.Context) {
		col.manifest, col.err = r.store.Collect(ctx, job)
		r.mu.Lock()
		delete(r.running, c.ID)
		r.mu.Unlock()
		close(col.done)
	})
	return col
}

// gather collects a mission's files before its end is told, so that they can be
// told with it. Nothing of the mission runs any more then; its exit is not
// acknowledged yet, so a crash in between only repeats this.
func (s *liveSession) gather(ctx context.Context, conn *cell.Conn) []mission.Artifact {
	e := s.eng
	job, ok := e.opts.Cells.Work(s.cell)
	if !ok {
		return nil
	}
	quiet, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	if err := conn.Kill(quiet, "", 0, 0); err != nil {
		if ferr := e.opts.Cells.Freeze(quiet, s.cell); ferr != nil {
			e.log.Warn("processes of an ended mission could not be ended before its files are collected", "mission", s.a.id, "error", errors.Join(err, ferr))
			job.Notes = append(job.Notes, "processes of the mission may have been running while its files were collected")
		}
	}
	col := e.collect(s.cell, job)
	late := time.NewTimer(collectWait)
	defer late.Stop()
	select {
	case <-col.done:
	case <-ctx.Done():
		return nil
	case <-s.a.launchCtx().Done():
		return nil
	case <-late.C:
		return []mission.Artifact{{Path: ".", Description: "the files were still being collected when the mission ended: " + filesCommand(s.a.id)}}
	}
	if col.err != nil {
		e.log.Error("files of a mission could not be collected yet; it is tried again", "mission", s.a.id, "error", col.err)
		return []mission.Artifact{{Path: ".", Description: "the files could not be collected when the mission ended: " + filesCommand(s.a.id)}}
	}
	return artifacts(col.manifest)
}

func filesCommand(id string) string { return "airlock mission files " + id }

// artifacts lists what a mission added or modified; what is too much is summed
// up.
func artifacts(m *result.Manifest) []mission.Artifact {
	var list []mission.Artifact
	size := 0
	for _, f := range m.Files {
		if f.Change == result.Deleted || f.Type == result.Dir {
			continue
		}
		a := mission.Artifact{Path: oneLine(f.Path), Description: oneLine(f.Words())}
		if size += len(a.Path) + len(a.Description); len(list) == maxArtifacts || size > maxArtifactBytes {
			break
		}
		list = append(list, a)
	}
	total := m.Added + m.Modified + m.Deleted
	if len(list) < total || !m.Complete {
		what := fmt.Sprintf("in all %d added, %d modified, %d deleted", m.Added, m.Modified, m.Deleted)
		if !m.Complete {
			what += ", not all of it kept"
		}
		list = append(list, mission.Artifact{Path: ".", Description: what + ": " + filesCommand(m.MissionID)})
	}
	return list
}

// oneLine takes control characters out of a name that a mission has chosen.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// settleWork stores what there is of an ended mission's files in its cell, which
// is stopped for that. Until it succeeds the cell must not be destroyed.
func (e *Engine) settleWork(ctx context.Context, c *cells.Cell) error {
	if c.MissionID == "" || c.State != cells.StateBound && !c.Uncollected && !c.Worked {
		return nil // no session was started in it
	}
	job, ok := e.opts.Cells.Work(c)
	if !ok || e.results.has(c) {
		return nil
	}
	stopCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := e.opts.Cells.Stop(stopCtx, c, 0); err != nil {
		return fmt.Errorf("stop the cell: %w", err)
	}
	col := e.collect(c, job)
	select {
	case <-col.done:
		return col.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// has says that the files of a cell's mission are stored.
func (r *results) has(c *cells.Cell) bool {
	stored, err := r.store.Open(c.MissionID)
	if err != nil {
		return false
	}
	m, err := stored.Manifest()
	return err == nil && m.CellID == c.ID
}

// Files gives what a mission changed, once it has ended; files that are being
// collected are waited for a while. ErrNotFound: there is no such mission;
// ErrConflict: not now; result.ErrNone: nothing is kept, with the reason.
func (e *Engine) Files(ctx context.Context, missionID string) (*result.Stored, error) {
	m, err := e.find(ctx, missionID)
	if err != nil {
		return nil, err
	}
	if !m.Terminal() {
		return nil, fmt.Errorf("the mission is %s; its files are collected when it ends: %w", m.State, ErrConflict)
	}
	for end := time.Now().Add(filesWait); ; {
		stored, err := e.results.store.Open(missionID)
		if !errors.Is(err, result.ErrNone) {
			return stored, err
		}
		waiting, err := e.hasCell(ctx, missionID)
		if err != nil {
			return nil, err
		}
		if !waiting { // looked at once more, since both may have happened in between
			if stored, err := e.results.store.Open(missionID); !errors.Is(err, result.ErrNone) {
				return stored, err
			}
			return nil, noFiles(m)
		}
		if time.Now().After(end) || wait(ctx, 50*time.Millisecond) != nil {
			return nil, fmt.Errorf("the files of the mission are still being collected: %w", ErrConflict)
		}
	}
}

func noFiles(m *mission.Mission) error {
	sp, err := frozen(m.Spec)
	if mode := sp.Cell.Workspace.Mode; err == nil && (mode == "read-only" || mode == "read-write") {
		return fmt.Errorf("%w: its workspace is %s itself (%s)", result.ErrNone, sp.Cell.Workspace.Source, mode)
	}
	return fmt.Errorf("%w: it left none, or they were removed since", result.ErrNone)
}

// hasCell says that the mission's cell is still to be ended.
func (e *Engine) hasCell(ctx context.Context, missionID string) (bool, error) {
	rows, err := e.opts.Store.Cells(ctx)
	if err != nil {
		return false, unavailable(err)
	}
	for _, r := range rows {
		if r.MissionID == missionID {
			return true, nil
		}
	}
	return false, nil
}
