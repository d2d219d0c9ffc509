package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

const maxReplies = 16

// said is what of a message a fence covers: not when it was read.
type said struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Message  string   `json:"message"`
	Tags     []string `json:"tags"`
	Priority string   `json:"priority"`
	ReplyTo  string   `json:"reply_to"`
	Author   string   `json:"author"`
	At       int64    `json:"at"`
}

func saidIn(m *message) said {
	return said{m.MessageID, m.Kind, m.Message, m.Tags, m.Priority, m.ReplyTo, m.AuthorSession, m.CreatedAt}
}

// assignmentFence is the digest of a todo and everything that was said to it.
func assignmentFence(sessionID string, todo *message, replies []*message) string {
	all := []said{saidIn(todo)}
	for _, m := range replies {
		all = append(all, saidIn(m))
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(append([]byte("airlock.workflow.assignment.v2\x00"+sessionID+"\x00"), text...))
	return prefixAssignment + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// assignment reads a todo with its replies; the answer that completed it is not
// one of them.
func assignment(r Reader, owner [32]byte, todo *message) (*Assignment, error) {
	replies, err := list[message](r, Query{Table: TableMessages, By: ByRef, Owner: owner, Key: todo.MessageID, Limit: maxReplies + 2})
	if err != nil {
		return nil, err
	}
	out := &Assignment{Todo: todo.view(), Replies: []MessageView{}}
	var counted []*message
	for _, m := range replies {
		if m.MessageID == todo.AnswerID {
			continue
		}
		counted = append(counted, m)
		out.Replies = append(out.Replies, m.view())
	}
	if len(counted) > maxReplies {
		return nil, refuse("assignment_too_large", UserAction, "the todo has more than 16 replies")
	}
	out.Fence = assignmentFence(todo.SessionID, todo, counted)
	return out, nil
}

// GetAssignment reads a todo with everything that was said to it.
func (k *Keeper) GetAssignment(ctx context.Context, by Caller, in GetAssignment) (Assignment, error) {
	return view(ctx, k, ofSessions, func(r Reader) (Assignment, error) {
		owner := by.Owner.Digest()
		if _, err := loadSession(r, owner, in.SessionID); err != nil {
			return Assignment{}, err
		}
		m, err := loadMessage(r, owner, in.SessionID, in.MessageID)
		if err != nil {
			return Assignment{}, err
		}
		if m.Kind != kindTodo {
			return Assignment{}, refuse("session_message_not_todo", FixInput, "the message is no todo")
		}
		a, err := assignment(r, owner, m)
		if err != nil {
			return Assignment{}, err
		}
		return *a, nil
	})
}

func (r CompleteResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

// CompleteMessage answers a todo and resolves it, if nothing was said to it
// since the caller has read it.
func (k *Keeper) CompleteMessage(ctx context.Context, by Caller, in CompleteMessage) (CompleteResult, error) {
	return mutate(ctx, k, by, ofCompletion, func(tx Tx) (CompleteResult, error) { return k.completeMessage(tx, by, in) })
}

func (in *CompleteMessage) normalize() (err error) {
	if n := chars(in.Answer); n > maxMessage || trimmed(in.Answer) == "" {
		return badMessage("answer must have 1 to 8000 characters")
	}
	if err := checkTags(in.Tags, in.Priority); err != nil {
		return err
	}
	if in.CompletionKey, err = key(in.CompletionKey, "invalid_completion_key"); err != nil {
		return err
	}
	if !isProof(prefixAssignment, in.ExpectedAssignmentFence) {
		return refuse("invalid_assignment_fence", FixInput, "expected_assignment_fence has not the form of a fence")
	}
	if len(in.Tags) == 0 {
		in.Tags = nil
	}
	if in.Priority == nil {
		normal := "normal"
		in.Priority = &normal
	}
	return nil
}

func (k *Keeper) completeMessage(tx Tx, by Caller, in CompleteMessage) (out CompleteResult, err error) {
	if err := in.normalize(); err != nil {
		return out, err
	}
	owner := by.Owner.Digest()
	s, err := loadSession(tx, owner, in.SessionID)
	if err != nil {
		return out, err
	}
	todo, err := loadMessage(tx, owner, s.ID, in.MessageID)
	if err != nil {
		return out, err
	}
	request := requestHash(opCompleteMessage, in)
	seen, err := replayed(tx, owner, opCompleteMessage, in.CompletionKey, request, "idempotency_conflict")
	if err != nil {
		return out, err
	}
	if seen != nil {
		answer, err := loadMessage(tx, owner, s.ID, seen.ResourceID)
		if err != nil {
			return out, err
		}
		return CompleteResult{Todo: todo.view(), Answer: answer.view(), Replayed: true}, nil
	}
	switch {
	case todo.Kind != kindTodo:
		return out, refuse("session_message_not_todo", FixInput, "the message is no todo")
	case todo.AnswerID != "":
		return out, refuse("already_completed", NoAction, "the todo was completed before, with another key")
	case todo.Status != messageOpen:
		return out, refuse("session_message_not_open", NoAction, "the todo is not open")
	}
	if err := s.writable(); err != nil {
		return out, err
	}
	now, err := assignment(tx, owner, todo)
	if err != nil {
		return out, err
	}
	if now.Fence != in.ExpectedAssignmentFence {
		e := refuse("assignment_stale", Reobserve, "something was said to the todo since you have read it; read it again")
		e.Assignment = now
		return out, e
	}
	answer := &message{MessageView: MessageView{Kind: kindAnswer, Status: messageOpen, Message: in.Answer, Tags: in.Tags,
		Priority: *in.Priority, ReplyTo: todo.MessageID, AuthorSession: by.Session}}
	if err := k.addMessage(tx, owner, s, answer); err != nil {
		return out, err
	}
	todo.Status, todo.AnswerID, todo.ResolvedAt = messageResolved, answer.MessageID, answer.CreatedAt
	tx.Update(rowOf(owner, todo))
	k.used(tx, owner, opCompleteMessage, in.CompletionKey, request, answer.MessageID, 0)
	return CompleteResult{Todo: todo.view(), Answer: answer.view(), StateChanged: true}, nil
}
