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
}

func (l *lostEvents) add(facts []mission.Fact) {
	for _, f := range facts {
		if g, ok := f.(mission.Gapped); ok && g.What == gapCalls {
			continue // it tells of what is counted already
		}
		text, err := json.Marshal(f)
		if err != nil {
			text = []byte(f.Kind())
		}
		l.n++
		l.digest = sha256.Sum256(append(l.digest[:], text...))
	}
}

// fact is the gap event; nil when nothing is missing.
func (l *lostEvents) fact() *mission.Gapped {
	if l.n == 0 {
		return nil
	}
	return &mission.Gapped{V: 1, What: gapCalls, To: l.n, Note: fmt.Sprintf("%d events of calls could not be journalled; the digest over them is sha256:%s", l.n, hex.EncodeToString(l.digest[:]))}
}
