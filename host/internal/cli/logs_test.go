package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// starting is a host whose mission knows its session's id before the session is
// there, and starts (or ends without a start) once somebody follows its events.
func starting(t *testing.T, last string) *shell {
	t.Helper()
	var over atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/missions/m1", func(w http.ResponseWriter, _ *http.Request) {
		state, started := "assigned", "null"
		if over.Load() {
			state = map[string]string{"started": "running", "ended": "failed"}[last]
			if last == "started" {
				started = `"2026-01-01T00:00:00Z"`
			}
		}
		fmt.Fprintf(w, `{"mission_id":"m1","state":%q,"state_reason":"cell_lost","pty_session_id":"s1","started_at":%s}`, state, started)
	})
	mux.HandleFunc("GET /tasks/m1/events", func(w http.ResponseWriter, r *http.Request) {
		over.Store(true)
		fmt.Fprintf(w, "data: {\"sequence\":1,\"kind\":%q}\n\n", last)
	})
	mux.HandleFunc("GET /api/v1/sessions/s1/log", func(w http.ResponseWriter, _ *http.Request) {
		if !over.Load() || last == "ended" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "hello\n")
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return &shell{t, map[string]string{"AIRLOCK_ADDR": srv.URL}, "/nonexistent"}
}

func TestLogsWaitForASessionThatIsStarting(t *testing.T) {
	t.Parallel()
	sh := starting(t, "started")
	sh.run("mission", "logs", "m1").want(t, ExitConflict).has(t, "no session yet")
	sh.run("mission", "attach", "m1").want(t, ExitConflict).has(t, "no session yet")
	if r := sh.run("mission", "logs", "m1", "--follow").want(t, 0); r.out != "hello\n" {
		t.Errorf("logs = %q", r.out)
	}
}

func TestLogsOfAMissionThatNeverStarted(t *testing.T) {
	t.Parallel()
	sh := starting(t, "ended")
	if r := sh.run("mission", "logs", "m1", "--follow").want(t, 0); r.out != "" {
		t.Errorf("logs = %q", r.out)
	}
	sh.run("mission", "logs", "m1").want(t, ExitConflict).has(t, "ended before it had a session", "cell_lost")
}
