package api

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// decodeEnvelope reads a complete intent envelope (seed 003). It is closed: a
// member that is misspelled would be a constraint that nobody checks. Numbers in
// constraints keep their spelling. The error is a governance.ErrEnvelope.
func decodeEnvelope(raw json.RawMessage) (*governance.Envelope, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("%w: it must be an object", governance.ErrEnvelope)
	}
	known := []string{"id", "goal", "requested_by", "constraints", "authority", "expires", "metadata"}
	if name, ok := stranger(members, known); ok {
		return nil, fmt.Errorf("%w: unknown member %q", governance.ErrEnvelope, name)
	}
	if by, ok := members["requested_by"]; ok {
		var who map[string]json.RawMessage
		if json.Unmarshal(by, &who) != nil {
			return nil, fmt.Errorf("%w: requested_by must be an object", governance.ErrEnvelope)
		}
		if name, ok := stranger(who, []string{"type", "id"}); ok {
			return nil, fmt.Errorf("%w: unknown member requested_by.%q", governance.ErrEnvelope, name)
		}
	}
	e := &governance.Envelope{}
	for name, into := range map[string]any{"id": &e.ID, "goal": &e.Goal, "requested_by": &e.RequestedBy, "constraints": &e.Constraints,
		"authority": &e.Authority, "expires": &e.Expires, "metadata": &e.Metadata} {
		v, ok := members[name]
		if !ok {
			continue
		}
		if json.Unmarshal(v, into) != nil {
			return nil, fmt.Errorf("%w: %s must be %s", governance.ErrEnvelope, name, envelopeKind(name))
		}
	}
	return e, e.Valid()
}

func envelopeKind(name string) string {
	switch name {
	case "id", "goal":
		return "a string"
	case "authority":
		return "an object of true and false"
	case "expires":
		return "a time with its zone (RFC 3339) or null"
	default:
		return "an object"
	}
}

// stranger finds a name that is not known, the first in their order.
func stranger(members map[string]json.RawMessage, known []string) (string, bool) {
	var names []string
	for name := range members {
		if !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return slices.Min(names), true
}
