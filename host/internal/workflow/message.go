package workflow

import (
	"context"
	"slices"
	"strings"
)

// Limits of messages.
const (
	maxMessages = 10000 // of a session
	maxMessage  = 8000
	maxTags     = 16
	maxTag      = 64
)

const (
	kindTodo     = "todo"
	kindQuestion = "question"
	kindAnswer   = "answer"
	kindProgress = "progress"

	messageOpen     = "open"
	messageResolved = "resolved"

	errDeliveryKey = "delivery_key_conflict"

	opPost            = "post_session_message"
	opCompleteMessage = "complete_session_message"
)

var messageKinds = []string{"note", "proposal", kindQuestion, kindAnswer, "decision", "risk", kindProgress, "guidance", kindTodo}

// message is the stored form.
type message struct {
	MessageView
	// AnswerID is the message that completed a todo.
	AnswerID string `json:"answer_id,omitempty"`
}

// Marks of a message that something waits for, in Row.State.
const (
	markTodo     = "t"
	markAck      = "a"
	markQuestion = "q"
)

func (m *message) row() Row {
	r := Row{Table: TableMessages, ID: m.MessageID, Parent: m.SessionID, Ref: m.ReplyTo}
	if m.Kind == kindTodo && m.Status == messageOpen {
		r.State += markTodo
	}
	if m.Kind == kindQuestion && m.Status == messageOpen {
		r.State += markQuestion
	}
	if m.RequiresAck && m.AckedAt == 0 {
		r.State += markAck
	}
	return r
}

func (m *message) view() MessageView {
	v := m.MessageView
	if v.Tags = slices.Clone(v.Tags); v.Tags == nil {
		v.Tags = []string{}
	}
	return v
}

// loadMessage reads a message of the session.
func loadMessage(r Reader, owner [32]byte, sessionID, id string) (*message, error) {
	m, err := load[message](r, TableMessages, owner, id)
	if err == nil && (m == nil || m.SessionID != sessionID) {
		return nil, refuse("unknown_message_id", FixInput, "the session has no such message")
	}
	return m, err
}

func (r PostResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

// PostMessage posts into a session, as the caller's recorder.
func (k *Keeper) PostMessage(ctx context.Context, by Caller, in PostMessage) (PostResult, error) {
	return mutate(ctx, k, by, ofSessions, func(tx Tx) (PostResult, error) { return k.post(tx, by, in) })
}

func (k *Keeper) post(tx Tx, by Caller, in PostMessage) (out PostResult, err error) {
	if err := in.normalize(); err != nil {
		return out, err
	}
	owner := by.Owner.Digest()
	s, err := loadSession(tx, owner, in.SessionID)
	if err != nil {
		return out, err
	}
	request := requestHash(opPost, in)
	if in.DeliveryKey != nil {
		m, err := posted(tx, by, s, *in.DeliveryKey, request)
		if err != nil {
			return out, err
		}
		if m != nil {
			return PostResult{Message: m.view(), Replayed: true}, nil
		}
	}
	if err := s.writable(); err != nil {
		return out, err
	}
	if in.ReplyTo != nil {
		if _, err := loadMessage(tx, owner, s.ID, *in.ReplyTo); err != nil {
			return out, err
		}
	}
	m := &message{MessageView: MessageView{Kind: in.Kind, Status: messageOpen, Message: in.Message, Tags: in.Tags, Priority: value(in.Priority),
		ReplyTo: value(in.ReplyTo), AuthorSession: by.Session, RequiresAck: value(in.RequiresAck)}}
	if err := k.addMessage(tx, owner, s, m); err != nil {
		return out, err
	}
	if in.DeliveryKey != nil {
		k.used(tx, owner, opPost, *in.DeliveryKey, request, m.MessageID, 0)
	}
	return PostResult{Message: m.view(), StateChanged: true}, nil
}

// posted finds the message that a delivery key was used for; nil: none. A key is
// the mission's, whichever of its sessions speaks: a repetition that names its
// speaker where the first one did not, or the other way round, is a repetition.
// One that names another speaker is another message.
func posted(r Reader, by Caller, s *session, key string, request [32]byte) (*message, error) {
	owner := by.Owner.Digest()
	// Earlier versions kept a key by its speaker.
	for _, operation := range []string{opPost, opPost + "/" + by.Session, opPost + "/", opPost + "/" + s.ID} {
		seen, err := replayed(r, owner, operation, key, request, errDeliveryKey)
		if err != nil {
			return nil, err
		}
		if seen == nil {
			continue
		}
		m, err := loadMessage(r, owner, s.ID, seen.ResourceID)
		if err == nil && m.AuthorSession != "" && by.Session != "" && m.AuthorSession != by.Session {
			err = refuse(errDeliveryKey, FixInput, "this key was used for a message of another session; use a new key for a new message")
		}
		return m, err
	}
	return nil, nil
}

// addMessage gives a message its id and its place in the session.
func (k *Keeper) addMessage(tx Tx, owner [32]byte, s *session, m *message) (err error) {
	if s.Messages >= maxMessages {
		return refuse("session_message_capacity_exceeded", UserAction, "the session has as many messages as it may have")
	}
	if m.MessageID, err = k.newID(tx, TableMessages, prefixMessage); err != nil {
		return err
	}
	m.SessionID, m.CreatedAt = s.ID, k.now()
	if m.Priority == "" {
		m.Priority = "normal"
	}
	s.Messages++
	tx.Insert(rowOf(owner, m))
	tx.Update(rowOf(owner, s))
	return nil
}

func badMessage(text string) error { return refuse("invalid_session_message", FixInput, text) }

func (in *PostMessage) normalize() (err error) {
	if !slices.Contains(messageKinds, in.Kind) {
		return badMessage("kind must be one of " + strings.Join(messageKinds, ", "))
	}
	if n := chars(in.Message); n > maxMessage || trimmed(in.Message) == "" {
		return badMessage("message must have 1 to 8000 characters")
	}
	if err := checkTags(in.Tags, in.Priority); err != nil {
		return err
	}
	if in.DeliveryKey != nil {
		k, err := key(*in.DeliveryKey, "invalid_delivery_key")
		if err != nil {
			return err
		}
		in.DeliveryKey = &k
	}
	return nil
}

func checkTags(tags []string, priority *string) error {
	if len(tags) > maxTags {
		return badMessage("there may be at most 16 tags")
	}
	for _, t := range tags {
		if n := chars(t); n < 1 || n > maxTag {
			return badMessage("each tag must have 1 to 64 characters")
		}
	}
	if priority != nil && !slices.Contains([]string{"low", "normal", "high"}, *priority) {
		return badMessage("priority must be low, normal or high")
	}
	return nil
}

func (r ResolveResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

// ResolveMessage closes a message that is no todo.
func (k *Keeper) ResolveMessage(ctx context.Context, by Caller, in ResolveMessage) (ResolveResult, error) {
	return mutate(ctx, k, by, ofSessions, func(tx Tx) (out ResolveResult, err error) {
		in.Resolution = trimmed(in.Resolution)
		if n := chars(in.Resolution); n < 1 || n > maxMessage {
			return out, badMessage("resolution must have 1 to 8000 characters")
		}
		owner := by.Owner.Digest()
		s, err := loadSession(tx, owner, in.SessionID)
		if err != nil {
			return out, err
		}
		m, err := loadMessage(tx, owner, s.ID, in.MessageID)
		if err != nil {
			return out, err
		}
		switch {
		case m.Kind == kindTodo:
			return out, refuse("session_message_is_todo", FixInput, "a todo is resolved by completing it")
		case m.Status == messageResolved && m.Resolution == in.Resolution:
			return ResolveResult{Message: m.view(), Replayed: true}, nil
		case m.Status == messageResolved:
			return out, refuse("session_message_not_open", NoAction, "the message was resolved before")
		}
		if err := s.writable(); err != nil {
			return out, err
		}
		m.Status, m.Resolution, m.ResolvedAt = messageResolved, in.Resolution, max(k.now(), m.CreatedAt)
		tx.Update(rowOf(owner, m))
		return ResolveResult{Message: m.view(), StateChanged: true}, nil
	})
}

// announce posts the end of an attempt into its task's session.
func (k *Keeper) announce(tx Tx, owner [32]byte, t *task, a *attempt, _ int64) error {
	if t.SessionID == "" {
		return nil
	}
	s, err := load[session](tx, TableSessions, owner, t.SessionID)
	if err != nil || s == nil || s.writable() != nil || s.Messages >= maxMessages {
		return err
	}
	m := &message{MessageView: MessageView{Kind: kindProgress, Status: messageOpen, Tags: []string{"agent_task"},
		Message: "agent task " + t.TaskID + ": attempt " + a.AttemptID + " " + string(a.State)}}
	return k.addMessage(tx, owner, s, m)
}
