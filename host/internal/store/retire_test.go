package store_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
