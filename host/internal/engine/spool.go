package engine

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// spoolMax bounds the spool of one task, in bytes; what is beyond it is counted
// in memory only.
const spoolMax = 16 << 20

// spooled is one event of a call that the journal could not take, on a line of
// its task's spool beside the trusted heads: a crash does not lose that it is
// missing (fail_open).
type spooled struct {
	Kind    journal.Kind    `json:"kind"`
	At      time.Time       `json:"at"`
	Payload json.RawMessage `json:"payload"`

	fact mission.Fact
}

func (e *Engine) spoolPath(taskID string) string {
	return filepath.Join(e.opts.SpoolDir, hashed(taskID)+".jsonl")
}

// keptPath is where a task's spool goes once the gap is in the journal; empty
// when there is none.
func (e *Engine) keptPath(taskID string, l *lostEvents) string {
	if e.opts.SpoolDir == "" {
		return ""
	}
	return filepath.Join(e.opts.SpoolDir, "kept", fmt.Sprintf("%s-%s.jsonl", hashed(taskID)[:16], hex.EncodeToString(l.digest[:8])))
}

// spool appends events to a task's spool, synced, and remembers what they
// dispatch, of which the journal will know nothing.
func (e *Engine) spool(taskID string, facts []mission.Fact) (err error) {
	if a := e.actor(taskID); a != nil {
		a.used.missed(dispatches(facts)...)
	}
	if e.opts.SpoolDir == "" {
		return nil
	}
	var text []byte
	for _, f := range facts {
		if g, ok := f.(mission.Gapped); ok && g.What == gapCalls {
			continue
		}
		line, err := json.Marshal(spooled{Kind: f.Kind(), At: e.now().UTC(), Payload: spooledText(f)})
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	if err := os.MkdirAll(e.opts.SpoolDir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(e.spoolPath(taskID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if info, err := file.Stat(); err != nil || info.Size()+int64(len(text)) > spoolMax {
		return errors.Join(err, fmt.Errorf("the spool %s would be larger than %d bytes", file.Name(), spoolMax))
	}
	if _, err := file.Write(append([]byte("\n"), text...)); err != nil { // a crash may have cut the last line
		return err
	}
	return file.Sync()
}

// unspool puts a task's spool away once its gap is in the journal.
func (e *Engine) unspool(taskID string, l *lostEvents) {
	if e.opts.SpoolDir == "" {
		return
	}
	to := e.keptPath(taskID, l)
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.Rename(e.spoolPath(taskID), to)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("the spool of a gap that is in the journal could not be put away; the next start tells of it again", "task", taskID, "error", err)
	}
}

// fromSpool is what a crash has left of a gap, and the events in it: the task is
// as it was before the crash once they are applied to what the journal knows.
func (e *Engine) fromSpool(ctx context.Context, taskID string) (l lostEvents, events []spooled) {
	if e.opts.SpoolDir == "" {
		return l, nil
	}
	events, err := readSpool(e.spoolPath(taskID))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			e.log.Error("the spool of events that could not be journalled cannot be read", "task", taskID, "error", err)
		}
		return l, nil
	}
	for i := range events {
		l.take(events[i].fact, events[i].Payload)
	}
	if l.n == 0 {
		return l, nil
	}
	if told, err := e.toldGap(ctx, taskID, &l); err != nil {
		e.log.Error("whether a gap is in the journal could not be read; it is told of again", "task", taskID, "error", err)
	} else if told { // the crash came before the spool was put away
		e.unspool(taskID, &l)
		return lostEvents{}, nil
	}
	e.log.Error("events of calls were not journalled before the host ended; the next event says so", "task", taskID, "events", l.n)
	return l, events
}

// toldGap says that the journal has the gap's event already.
func (e *Engine) toldGap(ctx context.Context, taskID string, l *lostEvents) (bool, error) {
	for after := uint64(0); ; {
		page, err := e.opts.Store.Events(ctx, taskID, after, 100)
		if err != nil || len(page) == 0 {
			return false, err
		}
		for i := range page {
			if page[i].Kind == journal.Gap && strings.Contains(page[i].Payload, l.sum()) {
				return true, nil
			}
		}
		after = page[len(page)-1].Sequence
	}
}

// keptCalls are the proposals that were dispatched in a task's gaps of before:
// the journal tells of their number only.
func (e *Engine) keptCalls(taskID string) ([]string, error) {
	if e.opts.SpoolDir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(e.opts.SpoolDir, "kept", hashed(taskID)[:16]+"-*.jsonl"))
	var l lostEvents
	for _, file := range files {
		events, rerr := readSpool(file)
		err = errors.Join(err, rerr)
		for i := range events {
			l.take(events[i].fact, nil)
		}
	}
	return l.calls, err
}

// readSpool reads the events of a spool. A line that a crash has cut is not
// counted.
func readSpool(path string) (events []spooled, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, spoolMax)
	for sc.Scan() {
		var s spooled
		if json.Unmarshal(sc.Bytes(), &s) != nil {
			continue
		}
		if s.fact, err = mission.Decode(s.Kind, string(s.Payload)); err == nil && s.fact != nil {
			events = append(events, s)
		}
	}
	return events, sc.Err()
}
