package engine

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	Payload json.RawMessage `json:"payload"`
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

// spool appends events to a task's spool, synced.
func (e *Engine) spool(taskID string, facts []mission.Fact) (err error) {
	if e.opts.SpoolDir == "" {
		return nil
	}
	var text []byte
	for _, f := range facts {
		if g, ok := f.(mission.Gapped); ok && g.What == gapCalls {
			continue
		}
		line, err := json.Marshal(spooled{f.Kind(), spooledText(f)})
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
	if _, err := file.Write(text); err != nil {
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

// fromSpool is what a crash has left of a gap. A line that the crash has cut is
// not counted.
func (e *Engine) fromSpool(taskID string) lostEvents {
	var l lostEvents
	if e.opts.SpoolDir == "" {
		return l
	}
	file, err := os.Open(e.spoolPath(taskID))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			e.log.Error("the spool of events that could not be journalled cannot be read", "task", taskID, "error", err)
		}
		return l
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, spoolMax)
	for sc.Scan() {
		var s spooled
		if json.Unmarshal(sc.Bytes(), &s) != nil {
			break
		}
		f, err := mission.Decode(s.Kind, string(s.Payload))
		if err != nil || f == nil {
			break
		}
		l.take(f, s.Payload)
	}
	if l.n > 0 {
		e.log.Error("events of calls were not journalled before the host ended; the next event says so", "task", taskID, "events", l.n)
	}
	return l
}
