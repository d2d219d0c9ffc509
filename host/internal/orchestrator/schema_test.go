package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

const id = "0190a000-0000-7000-8000-000000000001"

func frame(event, data string) string {
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"event":%q,"executor_id":%q,"mission_id":"m","ts":"2026-05-09T07:13:22.123Z"%s}`, event, id, data)
}

func TestFramesThatServeTakes(t *testing.T) {
	t.Parallel()
	for _, f := range []string{
		frame("executor.resync", `{"owned_mission_ids":[],"protocol_version":"1.0.0"}`),
		frame("mission.assigned", `{"state":"assigned","estimated_start":"2026-05-09T07:13:22.123Z"}`),
		frame("mission.started", `{"state":"running","agent_runtime":"claude-code","pty_session_id":"p"}`),
		frame("mission.progress", `{"phase":"execution","summary":"it 3","iteration":3,"tokens_used":0,"pct_complete":12.5}`),
		frame("mission.progress", `{}`),
		frame("mission.progress", ``),
		frame("mission.hitl_required", `{"hitl_id":"h","prompt":"?","context":"c","expires_at":"2026-05-09T07:13:22Z"}`),
		frame("mission.paused", `{"state":"paused"}`),
		frame("mission.resumed", `{"state":"running","resumed_from":"suspended"}`),
		frame("mission.suspended", `{"state":"suspended","checkpoint_id":"c","reason":"r"}`),
		frame("mission.reconnected", `{"checkpoint_id":""}`),
		frame("mission.completed", `{"state":"done","exit_code":0,"artifacts":[{"path":"a","description":"b"}]}`),
		frame("mission.failed", `{"state":"failed","reason":"signal","exit_code":-9}`),
		frame("mission.aborted", `{"state":"aborted","aborted_by":"operator"}`),
	} {
		if dropped, strict := orchestrator.CheckFrame([]byte(f)); dropped != "" || len(strict) > 0 {
			t.Errorf("%s: %s %v", f, dropped, strict)
		}
	}
}

func TestFramesThatServeDrops(t *testing.T) {
	t.Parallel()
	for f, why := range map[string]string{
		`{`: "not JSON",
		frame("mission.started", `{"state":"running"}`):                               "more than one shape",
		frame("mission.resumed", `{"state":"running"}`):                               "more than one shape",
		frame("mission.failed", `{"state":"failed","reason":""}`):                     "no shape",
		frame("mission.failed", `{"state":"failed","reason":"r","exit_code":null}`):   "no shape",
		frame("mission.aborted", `{"state":"aborted","exit_code":1}`):                 "no shape",
		frame("mission.completed", `{"state":"done","seq":1}`):                        "no shape",
		frame("mission.completed", `{"state":"completed"}`):                           "no shape",
		frame("mission.suspended", `{"state":"suspended","checkpoint_id":""}`):        "no shape",
		frame("mission.progress", `{"iteration":1.5}`):                                "no shape",
		frame("mission.progress", `{"pct_complete":101}`):                             "no shape",
		frame("mission.progress", `null`):                                             "data",
		frame("executor.resync", `{"owned_mission_ids":["a","a"]}`):                   "no shape",
		frame("mission.exploded", `{}`):                                               "vocabulary",
		strings.Replace(frame("mission.progress", ``), id, "sandbox-01-uuid", 1):      "uuid",
		strings.Replace(frame("mission.progress", ``), "T07:13:22.123Z", " 07:13", 1): "ts",
		strings.Replace(frame("mission.progress", ``), `"ts"`, `"seq":1,"ts"`, 1):     "seq",
		strings.Replace(frame("mission.progress", ``), `"m"`, `""`, 1):                "mission_id",
	} {
		if dropped, _ := orchestrator.CheckFrame([]byte(f)); !strings.Contains(dropped, why) {
			t.Errorf("%s: dropped %q, want %q", f, dropped, why)
		}
	}
}

func TestFramesThatServeTakesAndAirlockMustNotSend(t *testing.T) {
	t.Parallel()
	for _, f := range []string{
		frame("mission.completed", `{"summary":"x"}`), // matches progress
		frame("mission.completed", ``),
		frame("mission.hitl_responded", `{"hitl_id":"h","response":"y"}`),
		strings.Replace(frame("mission.progress", ``), "22.123Z", "22.123+02:00", 1),
		strings.Replace(frame("mission.progress", ``), "22.123Z", "22Z", 1),
		strings.Replace(frame("mission.progress", ``), `"mission_id":"m",`, ``, 1),
	} {
		if dropped, strict := orchestrator.CheckFrame([]byte(f)); dropped != "" || len(strict) == 0 {
			t.Errorf("%s: %s %v", f, dropped, strict)
		}
	}
}
