package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// R30: what became of a call whose answer was lost, by its id and by its nonce.
func TestALostAnswerIsLookedUp(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	out := r.must("run_command", r.command(r.progress(1, "k", "")))
	var made struct {
		InvocationID string `json:"invocation_id"`
	}
	_ = json.Unmarshal(out, &made)
	check := func(args string) {
		t.Helper()
		var o workflow.CallOutcome
		if err := json.Unmarshal(r.must("get_invocation_outcome", args), &o); err != nil || o.Tool != "run_command" || o.Main.State != workflow.Succeeded || o.Before == nil || o.Before.State != workflow.Succeeded || o.InProgress {
			t.Errorf("%s: %+v %v", args, o, err)
		}
	}
	check(`{"invocation_id":"` + made.InvocationID + `"}`)
	body := strings.Replace(callBody(Revision, "run_command", r.command(r.progress(2, "k2", ""))), `"_meta":{`, `"_meta":{"host.airlock/invocation-nonce":"n1",`, 1)
	if a := post(t, r.url, owner, Revision, body, "Mcp-Method", "tools/call", "Mcp-Name", "run_command"); a.status != 200 {
		t.Fatal(a.text)
	}
	check(`{"nonce":"n1"}`)
	if _, kind := r.do("get_invocation_outcome", `{"nonce":"other"}`); kind != "invocation_not_found" {
		t.Error(kind)
	}
	a := call(t, r.url, "somebody-else", "get_invocation_outcome", `{"invocation_id":"`+made.InvocationID+`"}`)
	if other, _ := structured(t, a); other.Success {
		t.Error("another owner sees the call")
	}
}

// manyClients is acceptance Y without crashes, on one goal that all contend for:
// sixteen clients, and every mutation counted once. TestNoCallIsLostOrDoubled
// has the crashes.
func manyClients(t *testing.T) {
	r := newReal(t)
	const clients, each = 16, 6
	var accepted, mains atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				revision := int64(1)
				for try := 0; ; try++ {
					out, kind := r.do("run_command", r.command(r.progress(revision, fmt.Sprintf("k-%d-%d", c, i), "")))
					got := r.control(out)
					if got.Main.State == workflow.Succeeded {
						mains.Add(1)
					}
					if kind == "" {
						if !got.Before.Replayed {
							accepted.Add(1)
						}
						break
					}
					if got.Before.ErrorKind != "goal_revision_changed" || try > 5000 {
						t.Errorf("%s %+v", kind, got.Before)
						return
					}
					revision = got.Before.Revision
				}
			}
		})
	}
	wg.Wait()
	if accepted.Load() != clients*each || mains.Load() != clients*each || r.commands.Load() != clients*each || r.revision() != 1+clients*each {
		t.Errorf("accepted %d, mains %d, commands %d, revision %d", accepted.Load(), mains.Load(), r.commands.Load(), r.revision())
	}
}
