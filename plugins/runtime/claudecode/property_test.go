package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// world is what must hold whatever the order of things is.
type world struct {
	*bench
	r        *rapid.T
	seen     int               // of b.all
	approved map[string]string // digest of the input that the last verdict lets run, by call
	admits   map[string]bool   // the machine has asked, and the host has not answered
	dispatch map[string]bool   // admitted by the host
	asked    map[string]string // input of the second gate, by request
	ended    map[string]int    // ends, by invocation
}

var inputs = []string{`{"command":"ls"}`, `{"command":"rm"}`, `{"n":1,"m":2}`, `{"m":2,"n":1.0}`}

// next is what usually follows for a call.
func (w *world) next(id string) int {
	c := w.m.st.Calls[id]
	switch {
	case w.admits[id]:
		return 6
	case c == nil:
		return 0
	case c.waiting:
		return 2
	case c.Invocation != "":
		return 9
	case c.Decided:
		return 4
	}
	return 12
}

// check looks at what came out: an allow of the second gate is only for a call
// that the host has admitted, with the input that it has decided on.
func (w *world) check() {
	for ; w.seen < len(w.all); w.seen++ {
		switch x := w.all[w.seen].GetMessage().(type) {
		case *pluginv1.RunResponse_Admit:
			w.admits[x.Admit.GetProposalId()] = true
		case *pluginv1.RunResponse_Settled:
			inv := x.Settled.GetInvocationId()
			if !w.dispatch[strings.TrimPrefix(inv, "inv-")] {
				w.r.Fatalf("%s has an end and was never admitted", inv)
			}
			w.ended[inv]++
		case *pluginv1.RunResponse_Write:
			w.write(x.Write)
		}
	}
}

func (w *world) write(x *pluginv1.Write) {
	id, ok := strings.CutPrefix(x.GetKey(), "answer/can-")
	if !ok || !strings.Contains(string(x.GetData()), `"behavior":"allow"`) {
		if strings.Contains(string(x.GetData()), "updatedPermissions") {
			w.r.Fatalf("permissions are given away: %s", x.GetData())
		}
		return
	}
	digest, err := inputDigest(json.RawMessage(w.asked[id]))
	if err != nil || !w.dispatch[id] || w.approved[id] != digest {
		w.r.Fatalf("%s was let through: admitted %v, approved %s, asked %s (%s)", id, w.dispatch[id], w.approved[id], w.asked[id], digest)
	}
}

// TestAnAllowIsOnlyForAnAdmittedCallWithItsInput throws everything at the
// machine in any order: lines of the CLI, true and forged, decisions,
// admissions, refusals, cancellations, restarts of the plugin.
func TestAnAllowIsOnlyForAnAdmittedCallWithItsInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := &world{bench: begin(t), r: r, approved: map[string]string{}, admits: map[string]bool{}, dispatch: map[string]bool{},
			asked: map[string]string{}, ended: map[string]int{}}
		first := map[string]string{}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for range rapid.IntRange(20, 150).Draw(r, "steps") {
			id := rapid.SampledFrom(ids).Draw(r, "call")
			input := rapid.SampledFrom(inputs).Draw(r, "input")
			what := rapid.IntRange(0, 13).Draw(r, "what")
			if rapid.IntRange(0, 9).Draw(r, "sensible") > 2 {
				what = w.next(id)
			}
			switch what {
			case 0, 1:
				if first[id] == "" {
					first[id] = input
				}
				w.pre(id, "Bash", first[id], rapid.SampledFrom([]string{"", "agent"}).Draw(r, "agent"))
			case 2, 3:
				d := rapid.SampledFrom([]pluginv1.Decision{allow, allow, allow, warn, blocked, pauses, escalate}).Draw(r, "decision")
				updated := rapid.SampledFrom([]string{"", "", `{"command":"rewritten"}`}).Draw(r, "updated")
				c := w.m.st.Calls[id]
				if c != nil && c.waiting && !c.Decided && (d == allow || d == warn) {
					text := string(c.input)
					if updated != "" {
						text = updated
					}
					w.approved[id], _ = inputDigest(json.RawMessage(text))
				}
				w.verdict(id, d, updated)
			case 4, 5:
				if rapid.Bool().Draw(r, "true") && w.m.st.Calls[id] != nil {
					if c := w.m.st.Calls[id]; len(c.updated) > 0 {
						input = string(c.updated)
					} else if len(c.input) > 0 {
						input = string(c.input)
					}
				}
				if w.asked[id] == "" { // a request has one content
					w.asked[id] = input
				}
				w.can(id, "Bash", w.asked[id])
			case 6, 7:
				if w.admits[id] { // a host answers what it was asked
					w.dispatch[id] = true
					delete(w.admits, id)
				} else if !w.dispatch[id] {
					break
				}
				w.admitted(id)
			case 8:
				if w.admits[id] {
					delete(w.admits, id)
					w.refused(id, rapid.SampledFrom([]string{"stale_epoch", "paused", "stopped", "journal_unavailable"}).Draw(r, "why"))
				}
			case 9:
				w.post(id, "Bash", rapid.SampledFrom([]string{"PostToolUse", "PostToolUseFailure"}).Draw(r, "event"))
			case 10:
				w.printed(id, rapid.Bool().Draw(r, "error"), rapid.SampledFrom([]string{"", `,"permission_decision":{"decision":"reject"}`, `,"non_execution_kind":"user-rejected"`}).Draw(r, "meta"))
			case 11:
				w.cli(fmt.Sprintf(`{"type":"control_cancel_request","request_id":"%s-%s"}`, rapid.SampledFrom([]string{"pre", "can", "post"}).Draw(r, "gate"), id))
			case 12:
				w.tick(2 * oneSecond)
			case 13:
				if rapid.IntRange(0, 3).Draw(r, "restart") == 0 {
					w.restart()
					w.admits = map[string]bool{}
				}
			}
			w.check()
		}
		w.exit(&pluginv1.Exit{Signal: 9})
		w.check()
	})
}
