package kernel

import (
	"context"
	"encoding/json"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Limits of what an envelope's members add to an output, in bytes.
const (
	maxAttention = 3 << 10
	maxMaterials = 20 << 10
)

// attention is output.session_attention.
type attention struct {
	SessionID    string                 `json:"session_id"`
	Source       string                 `json:"source"`
	RequiresAck  int                    `json:"requires_ack"`
	Messages     []workflow.MessageView `json:"messages"`
	OmittedCount int                    `json:"omitted_count"`
	Truncated    bool                   `json:"truncated"`
	Ack          *workflow.AckResult    `json:"ack,omitempty"`
	Resolve      *resolved              `json:"resolve,omitempty"`
}

// resolved is what came of _wc.resolve, which is committed before the main call
// and stays when that fails.
type resolved struct {
	MessageID    string `json:"message_id"`
	StateChanged bool   `json:"state_changed"`
	Replayed     bool   `json:"replayed"`
}

// wroteMessages says whether a message was resolved or acknowledged.
func (r *run) wroteMessages() bool {
	return r.resolve != nil && r.resolve.StateChanged || r.ack != nil && r.ack.Accepted > 0
}

// attention reads what waits for the recording session; nil when nothing does
// and nothing was acknowledged or resolved.
func (r *run) attention(ctx context.Context) *attention {
	by := r.c.by().Caller
	got, err := r.k.opts.Service.Attention(ctx, by, by.Session)
	if r.ack == nil && r.resolve == nil && (err != nil || got.RequiresAck == 0) {
		return nil // what was done is said, whether what waits can be read or not
	}
	a := &attention{SessionID: by.Session, Source: "record", RequiresAck: got.RequiresAck, Messages: got.Messages, OmittedCount: got.OmittedCount, Ack: r.ack, Resolve: r.resolve}
	if a.Messages == nil {
		a.Messages = []workflow.MessageView{}
	}
	for len(a.Messages) > 0 {
		if text, err := json.Marshal(a.Messages); err == nil && len(text) <= maxAttention {
			break
		}
		a.Messages = a.Messages[:len(a.Messages)-1]
		a.OmittedCount++
		a.Truncated = true
	}
	return a
}

// materials is output.context_projection.
type materials struct {
	Materials []material `json:"materials"`
	Truncated bool       `json:"truncated"`
}

type material struct {
	Key        string `json:"key"`
	Status     string `json:"status"` // available | unavailable | unsupported
	ReasonCode string `json:"reason_code,omitempty"`
	Projection any    `json:"projection,omitempty"`
}

// context looks up what the envelope asks for. A key that there is not, or that
// cannot be had, never fails the call.
func (r *run) context(ctx context.Context) materials {
	out := materials{Materials: []material{}}
	room := maxMaterials
	for _, key := range r.c.Envelope.Context {
		m := material{Key: key, Status: "unsupported"}
		if r.k.opts.Material != nil {
			value, ok, err := r.k.opts.Material(ctx, r.c.Caller, key)
			switch {
			case ok && err != nil:
				m.Status, m.ReasonCode = "unavailable", code(workflow.KindOf(err))
			case ok:
				m.Status, m.Projection = "available", value
			}
		}
		text, err := json.Marshal(m)
		if err != nil || len(text) > room {
			m = material{Key: key, Status: "unavailable", ReasonCode: "too_large"}
			out.Truncated = true
			text, _ = json.Marshal(m)
		}
		room -= len(text)
		out.Materials = append(out.Materials, m)
	}
	return out
}
