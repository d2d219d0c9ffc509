package governance

import (
	"encoding/json"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Decode reads a task's fact from an event's payload; nil, nil for an event
// that is none of a task.
func Decode(kind journal.Kind, payload []byte) (Fact, error) {
	switch kind {
	case journal.Proposed:
		return decodeInto[Proposed](payload)
	case journal.Decision:
		return decodeInto[Decided](payload)
	case journal.Approval:
		return decodeInto[Approved](payload)
	case journal.Executed:
		return decodeInto[Executed](payload)
	case journal.Completed, journal.Failed:
		return decodeInto[Settled](payload)
	case journal.CancelRequested:
		return decodeInto[CancelRequested](payload)
	case journal.IntentChanged:
		return decodeInto[IntentChanged](payload)
	case journal.RulesChanged:
		return decodeInto[RulesChanged](payload)
	case journal.Resolved:
		return decodeInto[Resolved](payload)
	case journal.Granted:
		return decodeInto[Granted](payload)
	case journal.RevocationStarted:
		return decodeInto[RevocationStarted](payload)
	case journal.RevocationResult:
		return decodeInto[RevocationResult](payload)
	}
	return nil, nil
}

func decodeInto[F Fact](payload []byte) (Fact, error) {
	var f F
	err := json.Unmarshal(payload, &f)
	return f, err
}
