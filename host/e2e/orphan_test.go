package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestAnOrphanedCellIsFrozenAtOnceAndSaid: the store has lost the cell's row, or
// its mission's row is gone, unreadable or says what the journal does not. The
// cell is frozen and named in status with when it is destroyed, which a restart
// does not put off; it goes on where the store is put back in time.
func TestAnOrphanedCellIsFrozenAtOnceAndSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queries []string
		says    string
	}{
		"row of the cell lost": {[]string{"DELETE FROM cells"}, "the store does not know it"},
		"mission lost":         {[]string{"DELETE FROM events", "DELETE FROM tasks"}, "is not in the store"},
		"mission unreadable":   {[]string{"UPDATE tasks SET data = x'ff00ff'"}, "cannot be read"},
		"mission counts ended": {[]string{"UPDATE tasks SET terminal = 1, state = 'done'"}, "counts as ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, settings{extra: "orphan_ttl = \"1h\"\n"})
			r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{}, "completion": "x", "objective": writer})
			r.until("it writes", func() bool { return r.size("main") > 0 && r.size("child") > 0 })
			r.end(syscall.SIGKILL)
			putBack := r.copyStore()
			for _, q := range c.queries {
				r.tamper(q)
			}
			said := func() string {
				var ready struct{ Trouble []string }
				r.call(http.MethodGet, "/readyz", nil, &ready)
				for _, line := range ready.Trouble {
					if strings.Contains(line, "orphan_ttl") && strings.Contains(line, c.says) {
						return line
					}
				}
				return ""
			}
			r.start()
			r.until("status says it", func() bool { return said() != "" })
			r.until("the cell is frozen", r.still)
			first := said()
			if len(cellPids(r.dir, false)) == 0 {
				t.Fatal("the cell is gone")
			}
			r.end(syscall.SIGKILL)
			if c.queries[0] == "DELETE FROM cells" {
				r.start()
				r.until("it is said again", func() bool { return said() != "" })
				if again := said(); again != first {
					t.Errorf("after a restart: %s, before: %s", again, first)
				}
				r.end(syscall.SIGTERM)
				r.edit(`orphan_ttl = "1h"`, `orphan_ttl = "1s"`)
				r.start()
				r.until("the cell is destroyed", func() bool { return len(cellPids(r.dir, false)) == 0 && said() == "" })
				return
			}
			putBack()
			r.start()
			r.reaches("m", "running")
			size := r.size("main")
			r.until("it goes on", func() bool { return r.size("main") > size })
			r.until("nothing is said of it any more", func() bool { return said() == "" })
		})
	}
}
