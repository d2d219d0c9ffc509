package store_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

// Rows of the workflow that Sweep would not know of would stay for ever.
func TestSweepKnowsEveryTableOfTheWorkflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closeStore(t, open(t, dir))
	db, err := sql.Open("sqlite", filepath.Join(dir, "data", "missions.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'wf!_%' ESCAPE '!'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var there []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		there = append(there, name)
	}
	known := append(store.WorkTables(), "wf_keys")
	slices.Sort(there)
	slices.Sort(known)
	if err := rows.Err(); err != nil || !slices.Equal(there, known) {
		t.Errorf("in the file: %s\nknown: %s\n%v", strings.Join(there, " "), strings.Join(known, " "), err)
	}
	var mode int
	if err := db.QueryRow("PRAGMA auto_vacuum").Scan(&mode); err != nil || mode != 2 {
		t.Errorf("a new file cannot give space back: auto_vacuum is %d, %v", mode, err)
	}
}

// The order of events is that of their sequence, whatever the wall clock does,
// and the chain over them holds (F12).
func TestAClockThatJumpsChangesNoOrder(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := newWorkload("m")
	now := time.Now()
	jumps := []time.Duration{0, time.Hour, -time.Hour, 0, 24 * 365 * time.Hour, -24 * 365 * 10 * time.Hour, time.Second}
	for _, jump := range jumps {
		commit(t, s, w.next(now.Add(jump)))
	}
	events := allEvents(t, s, "m")
	if len(events) != len(jumps) {
		t.Fatalf("%d events", len(events))
	}
	for i := range events {
		if events[i].Sequence != uint64(i+1) || !events[i].Timestamp.Equal(now.Add(jumps[i]).Truncate(time.Millisecond)) {
			t.Errorf("event %d: %+v", i+1, events[i])
		}
	}
	if err := s.VerifyTask(ctx, "m"); err != nil {
		t.Error(err)
	}
	feed, _, err := s.Feed(ctx, 0, 100)
	if err != nil || len(feed) != len(jumps) || feed[len(feed)-1].Sequence != uint64(len(jumps)) {
		t.Errorf("the feed: %d events, %v", len(feed), err)
	}
}
