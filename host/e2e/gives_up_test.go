package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestARuntimeThatCannotGoOnEndsTheMission: its agent does not end by itself,
// and a child of it would not end with it.
func TestARuntimeThatCannotGoOnEndsTheMission(t *testing.T) {
	t.Parallel()
	r := renewRig(t, "", "")
	r.governed("m", puttingOff+`
trap '' TERM HUP INT
(while :; do sleep 1; done) &
echo 'FATAL its gates do not hold: call 7 ran without an admission'
while :; do sleep 1; done
`)
	m := r.reaches("m", "done", "failed", "aborted")
	if m.State != "failed" || m.Error != "its gates do not hold: call 7 ran without an admission" || r.reason("m") != "dispatch_error" {
		t.Errorf("state %s, reason %q, error %q", m.State, r.reason("m"), m.Error)
	}
	r.untilQuiet()
	r.verify("m")
}

// TestAccessOfAnEarlierSessionIsTakenBack: each session of a mission has a
// credential of its own, and the one before is void while the mission goes on.
func TestAccessOfAnEarlierSessionIsTakenBack(t *testing.T) {
	t.Parallel()
	r := renewRig(t, "", "revokers = [revoker.fake.issuer]", `
revoker "fake" "issuer" {
  config {}
}
`)
	r.governed("m", puttingOff+`
echo "$FAKE_TOKEN" >> tokens
if [ -z "$KEPT" ]; then echo "KEEP going"; kill -9 $$; fi
until [ -e go ]; do sleep 0.1; done
`)
	grants := func(state string) (ids []string) {
		var page struct {
			Events []struct {
				Kind    string
				Payload struct {
					GrantID string `json:"grant_id"`
					State   string
				}
			}
		}
		r.call(http.MethodGet, "/tasks/m/events?after=0", nil, &page)
		for _, ev := range page.Events {
			if ev.Kind == "granted" && ev.Payload.State == state {
				ids = append(ids, ev.Payload.GrantID)
			}
		}
		return ids
	}
	r.until("the first credential is taken back", func() bool { return len(grants("revoked")) > 0 })
	active, gone := grants("active"), grants("revoked")
	if len(active) != 2 || len(gone) != 1 || gone[0] != active[0] || active[0] == active[1] {
		t.Errorf("granted %q, taken back %q", active, gone)
	}
	r.until("the second session has begun", func() bool { return len(r.rows("tokens")) == 2 })
	if got := r.rows("tokens"); got[0] != "fake-"+active[0] || got[1] != "fake-"+active[1] {
		t.Errorf("the sessions had %q", got)
	}
	write(t, r.work+"/go", "", 0o644)
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	r.until("what the second had is taken back too", func() bool {
		kinds := strings.Join(r.journal("m"), " ")
		return strings.Contains(kinds, "revocation_result")
	})
	r.verify("m")
}
