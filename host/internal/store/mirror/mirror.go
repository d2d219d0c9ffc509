package mirror

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/go-hclog"
)

// interval is how long the file may be behind, and how often it is written at
// most.
const interval = 200 * time.Millisecond

// Mirror writes missions.json. Put and Drop only note what changed; one
// goroutine writes the whole file, atomically and with mode 0600.
type Mirror struct {
	path string
	log  hclog.Logger

	mu       sync.Mutex
	missions map[string]Record
	err      error // of the last write
	// abandoned: nothing is written any more.
	abandoned bool
	writes    int

	dirty chan struct{} // capacity 1
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Start mirrors to dir/missions.json, beginning with these missions. Close
// ends it.
func Start(dir string, missions []Record, log hclog.Logger) *Mirror {
	m := &Mirror{
		path: filepath.Join(dir, FileName), log: log,
		missions: make(map[string]Record, len(missions)),
		dirty:    make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if m.log == nil {
		m.log = hclog.NewNullLogger()
	}
	for _, r := range missions {
		if InFlight(r.State) {
			m.missions[r.MissionID] = r
		}
	}
	m.changed()
	go m.run()
	return m
}

// Put mirrors a mission as it is now; one that is over leaves the file.
func (m *Mirror) Put(r Record) {
	m.mu.Lock()
	if InFlight(r.State) {
		m.missions[r.MissionID] = r
	} else {
		delete(m.missions, r.MissionID)
	}
	m.mu.Unlock()
	m.changed()
}

// Drop takes a mission out of the file.
func (m *Mirror) Drop(missionID string) {
	m.mu.Lock()
	delete(m.missions, missionID)
	m.mu.Unlock()
	m.changed()
}

// Err says why the last write failed; nil normally. It is tried again at the
// next change.
func (m *Mirror) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close writes what is left and ends the goroutine.
func (m *Mirror) Close() error {
	m.once.Do(func() { close(m.stop) })
	<-m.done
	return m.Err()
}

// Abandon ends the goroutine and writes nothing more: another process keeps the
// file from now on, and writes it whole.
func (m *Mirror) Abandon() {
	m.mu.Lock()
	m.abandoned = true
	m.mu.Unlock()
	_ = m.Close()
}

func (m *Mirror) changed() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// run writes behind a change, not at it: what changes a mission waits for the
// same disk.
func (m *Mirror) run() {
	defer close(m.done)
	pause := time.NewTimer(interval)
	defer pause.Stop()
	for {
		select {
		case <-m.stop:
			m.writeIfDirty()
			return
		case <-m.dirty:
		}
		pause.Reset(interval)
		select {
		case <-m.stop:
			m.write()
			return
		case <-pause.C:
		}
		select { // what came meanwhile is written with it
		case <-m.dirty:
		default:
		}
		m.write()
	}
}

func (m *Mirror) writeIfDirty() {
	select {
	case <-m.dirty:
		m.write()
	default:
	}
}

func (m *Mirror) write() {
	m.mu.Lock()
	if m.abandoned {
		m.mu.Unlock()
		return
	}
	b, err := json.MarshalIndent(m.missions, "", "  ")
	m.writes++
	m.mu.Unlock()
	if err == nil {
		err = renameio.WriteFile(m.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w", m.path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.err == nil {
		m.log.Warn("the mirror of the missions in flight cannot be written", "file", m.path, "error", err)
	}
	m.err = err
}
