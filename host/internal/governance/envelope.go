package governance

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrEnvelope says that an intent envelope is not whole or not well formed.
var ErrEnvelope = errors.New("intent envelope")

// Envelope is what somebody wants and within which bounds (seed 003: a complete
// IntentEnvelope).
type Envelope struct {
	ID          string                     `json:"id"`
	Goal        string                     `json:"goal"`
	RequestedBy Requester                  `json:"requested_by"`
	Constraints map[string]json.RawMessage `json:"constraints"`
	Authority   map[string]bool            `json:"authority"`
	Expires     *time.Time                 `json:"expires"` // null: never
	Metadata    map[string]json.RawMessage `json:"metadata"`
}

// Requester is who asked.
type Requester struct {
	Type string `json:"type"` // human | agent | system
	ID   string `json:"id"`
}

// Valid says what is missing of a complete envelope; the error names the field.
func (e *Envelope) Valid() error {
	switch {
	case e.ID == "":
		return fmt.Errorf("%w: id must not be empty", ErrEnvelope)
	case e.Goal == "":
		return fmt.Errorf("%w: goal must not be empty", ErrEnvelope)
	case e.RequestedBy.Type != "human" && e.RequestedBy.Type != "agent" && e.RequestedBy.Type != "system":
		return fmt.Errorf("%w: requested_by.type must be human, agent or system, it is %q", ErrEnvelope, e.RequestedBy.Type)
	case e.RequestedBy.ID == "":
		return fmt.Errorf("%w: requested_by.id must not be empty", ErrEnvelope)
	case e.Constraints == nil:
		return fmt.Errorf("%w: constraints must be an object (it may be empty)", ErrEnvelope)
	}
	for name, v := range e.Constraints {
		if !json.Valid(v) {
			return fmt.Errorf("%w: constraints.%s is not JSON", ErrEnvelope, name)
		}
	}
	return nil
}

// Expired says whether the envelope's time is over.
func (e *Envelope) Expired(now time.Time) bool { return e.Expires != nil && !now.Before(*e.Expires) }

// JSON is the envelope as it is journalled; nil for none.
func (e *Envelope) JSON() []byte {
	if e == nil {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil // Valid refuses what cannot be encoded
	}
	return text
}

// Digest of the envelope, over its JSON; empty for none.
func (e *Envelope) Digest() string {
	if e == nil {
		return ""
	}
	return Digest(e.JSON())
}
