package workflow

import (
	"context"
	"strings"
)

// Limits of acknowledging.
const (
	maxAcks      = 8
	shownWaiting = 3
	shownBytes   = 3072 // bytes of messages
)

func (r AckResult) phase() PhaseOutcome {
	changed := r.Accepted > 0
	return PhaseOutcome{State: Succeeded, StateChanged: &changed}
}

// Ack marks messages as read. The limit counts the ids as they were given.
func (k *Keeper) Ack(ctx context.Context, by Caller, sessionID string, ids []string) (AckResult, error) {
	return mutate(ctx, k, by, ofSessions, func(tx Tx) (out AckResult, err error) {
		if len(ids) > maxAcks {
			return out, badMessage("at most 8 messages can be acknowledged at once")
		}
		owner := by.Owner.Digest()
		s, err := loadSession(tx, owner, sessionID)
		if err != nil {
			return out, err
		}
		seen := map[string]bool{}
		for _, id := range ids {
			m, err := load[message](tx, TableMessages, owner, id)
			if err != nil {
				return AckResult{}, err
			}
			if m == nil || m.SessionID != s.ID || seen[id] || !m.RequiresAck || m.AckedAt != 0 {
				out.Ignored++
				continue
			}
			seen[id] = true
			m.AckedAt = max(k.now(), m.CreatedAt)
			tx.Update(rowOf(owner, m))
			out.Accepted++
		}
		return out, nil
	})
}

// Attention reads what of a session waits to be acknowledged.
func (k *Keeper) Attention(ctx context.Context, by Caller, sessionID string) (Attention, error) {
	return view(ctx, k, ofSessions, func(r Reader) (Attention, error) {
		out := Attention{SessionID: sessionID, Messages: []MessageView{}}
		owner := by.Owner.Digest()
		if _, err := loadSession(r, owner, sessionID); err != nil {
			return out, err
		}
		rows, err := r.List(Query{Table: TableMessages, By: ByParent, Key: sessionID, Open: true})
		if err != nil {
			return out, err
		}
		bytes := 0
		for _, row := range rows {
			if !strings.Contains(row.State, markAck) {
				continue
			}
			out.RequiresAck++
			m, err := decode[message](row)
			if err != nil {
				return out, err
			}
			if len(out.Messages) == shownWaiting || out.OmittedCount > 0 || bytes+len(m.Message) > shownBytes {
				out.OmittedCount++
				continue
			}
			bytes += len(m.Message)
			out.Messages = append(out.Messages, m.view())
		}
		return out, nil
	})
}
