package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// failsOpen says whether these facts may happen although they cannot be
// journalled: under fail_open the calls of missions that already run, and
// nothing else (rulings 21). Stop, stale and consumed guards hold all the same,
// since they look at the state in memory.
func (e *Engine) failsOpen(facts []mission.Fact) bool {
	if e.rules().OnFailure() != "fail_open" || len(facts) == 0 {
		return false
	}
	for _, f := range facts {
		switch f := f.(type) {
		case governance.Proposed, governance.Executed, governance.Settled:
		case governance.Decided:
			if f.Decision.Status.Waits() { // a human cannot answer what is not written
				return false
			}
		case mission.Gapped:
			if f.What != gapCalls {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// gapCalls is what a gap event says is missing: events of calls.
const gapCalls = "calls"

// lostEvents are events that could not be journalled, as the next event that can
// be tells of them: their number, and a digest over their payloads in order.
type lostEvents struct {
	n      uint64
	digest [sha256.Size]byte
	calls  []string // proposals that were dispatched among them
}

func (l *lostEvents) add(facts []mission.Fact) {
	for _, f := range facts {
		if g, ok := f.(mission.Gapped); ok && g.What == gapCalls {
			continue // it tells of what is counted already
		}
		l.take(f, spooledText(f))
	}
}

// take counts one event by its text.
func (l *lostEvents) take(f mission.Fact, text []byte) {
	l.n++
	l.digest = sha256.Sum256(append(l.digest[:], text...))
	if x, ok := f.(governance.Executed); ok {
		l.calls = append(l.calls, x.ProposalID)
	}
}

func spooledText(f mission.Fact) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		return []byte(f.Kind())
	}
	return text
}

// sum is the digest as the gap event shows it.
func (l *lostEvents) sum() string { return "sha256:" + hex.EncodeToString(l.digest[:]) }

// fact is the gap event; kept is where the events are.
func (l *lostEvents) fact(kept string) mission.Gapped {
	note := fmt.Sprintf("%d events of calls could not be journalled; the digest over them is %s", l.n, l.sum())
	if kept != "" {
		note += "; they are kept in " + kept
	}
	return mission.Gapped{V: 1, What: gapCalls, To: l.n, Note: note}
}
