package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

func (w *world) say(c workflow.MissionContext, kind, text string, change ...func(*workflow.PostMessage)) workflow.MessageView {
	w.t.Helper()
	in := workflow.PostMessage{SessionID: c.SessionID, Kind: kind, Message: text}
	for _, f := range change {
		f(&in)
	}
	return must(w.k.PostMessage(ctx, w.by(), in))(w.t).Message
}

func replyTo(id string) func(*workflow.PostMessage) {
	return func(p *workflow.PostMessage) { p.ReplyTo = &id }
}

func (w *world) assignment(c workflow.MissionContext, id string) workflow.Assignment {
	w.t.Helper()
	return must(w.k.GetAssignment(ctx, w.by(), workflow.GetAssignment{SessionID: c.SessionID, MessageID: id}))(w.t)
}

func TestPostMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	by := w.by()
	by.Session = c.SessionID
	in := workflow.PostMessage{SessionID: c.SessionID, Kind: "note", Message: strings.Repeat("é", 8000), DeliveryKey: ptr("d")}
	r := must(w.k.PostMessage(ctx, by, in))(t)
	if r.Message.AuthorSession != c.SessionID || r.Message.Priority != "normal" || r.Message.Status != "open" {
		t.Fatalf("%+v", r.Message)
	}
	if again := must(w.k.PostMessage(ctx, by, in))(t); !again.Replayed || again.Message.MessageID != r.Message.MessageID {
		t.Errorf("%+v", again)
	}
	// The key is the mission's: a repetition need not say again who speaks, and
	// another speaker has no key of its own.
	if again := must(w.k.PostMessage(ctx, w.by(), in))(t); !again.Replayed || again.Message.MessageID != r.Message.MessageID {
		t.Errorf("without its speaker: %+v", again)
	}
	other := by
	other.Session = "wc_sess_abcdefghijklmnop"
	w.refused("delivery_key_conflict", func() error { _, err := w.k.PostMessage(ctx, other, in); return err })
	unnamed := in
	unnamed.DeliveryKey = ptr("d2")
	first := must(w.k.PostMessage(ctx, w.by(), unnamed))(t)
	if again := must(w.k.PostMessage(ctx, by, unnamed))(t); !again.Replayed || again.Message.MessageID != first.Message.MessageID {
		t.Errorf("with a speaker that the first one did not name: %+v", again)
	}
	in.Message = "other"
	for _, by := range []workflow.Caller{by, w.by()} {
		w.refused("delivery_key_conflict", func() error { _, err := w.k.PostMessage(ctx, by, in); return err })
	}
	for name, tt := range map[string]struct {
		kind   string
		change func(*workflow.PostMessage)
	}{
		"kind":             {"invalid_session_message", func(p *workflow.PostMessage) { p.Kind = "chat" }},
		"8001 characters":  {"invalid_session_message", func(p *workflow.PostMessage) { p.Message = strings.Repeat("é", 8001) }},
		"space":            {"invalid_session_message", func(p *workflow.PostMessage) { p.Message = " " }},
		"17 tags":          {"invalid_session_message", func(p *workflow.PostMessage) { p.Tags = repeat("t", 17) }},
		"a tag of 65":      {"invalid_session_message", func(p *workflow.PostMessage) { p.Tags = []string{strings.Repeat("é", 65)} }},
		"priority":         {"invalid_session_message", func(p *workflow.PostMessage) { p.Priority = ptr("urgent") }},
		"delivery key":     {"invalid_delivery_key", func(p *workflow.PostMessage) { p.DeliveryKey = ptr("") }},
		"session":          {"unknown_session_id", func(p *workflow.PostMessage) { p.SessionID = "wc_sess_AAAAAAAAAAAAAAAA" }},
		"not even an id":   {"unknown_session_id", func(p *workflow.PostMessage) { p.SessionID = "nobody" }},
		"reply to nothing": {"unknown_message_id", func(p *workflow.PostMessage) { p.ReplyTo = ptr("wc_msg_AAAAAAAAAAAAAAAA") }},
	} {
		bad := workflow.PostMessage{SessionID: c.SessionID, Kind: "note", Message: "m"}
		tt.change(&bad)
		w.refused(tt.kind, func() error { _, err := w.k.PostMessage(ctx, w.by(), bad); return err })
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestATodoIsCompletedAgainstWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	todo := w.say(c, "todo", "do it", func(p *workflow.PostMessage) { p.RequiresAck = ptr(true) })
	a := w.assignment(c, todo.MessageID)
	if len(a.Fence) != 27 || !strings.HasPrefix(a.Fence, "wsa2_") || len(a.Replies) != 0 {
		t.Fatalf("%+v", a)
	}
	// Reading it again, or acknowledging it, gives the same fence.
	must(w.k.Ack(ctx, w.by(), c.SessionID, []string{todo.MessageID}))(t)
	if b := w.assignment(c, todo.MessageID); b.Fence != a.Fence {
		t.Error("an acknowledgement changes the fence")
	}
	in := workflow.CompleteMessage{SessionID: c.SessionID, MessageID: todo.MessageID, Answer: "done", CompletionKey: "k", ExpectedAssignmentFence: a.Fence}
	guidance := w.say(c, "guidance", "mind the gap", replyTo(todo.MessageID))
	rows, _ := w.mem.snapshot()
	_, err := w.k.CompleteMessage(ctx, w.by(), in)
	var stale *workflow.Error
	if !errors.As(err, &stale) || stale.Kind != "assignment_stale" || stale.Assignment == nil || len(stale.Assignment.Replies) != 1 ||
		stale.Assignment.Replies[0].MessageID != guidance.MessageID || stale.Assignment.Fence == a.Fence {
		t.Fatalf("%+v", err)
	}
	if after, _ := w.mem.snapshot(); !equalRows(rows, after) {
		t.Error("a stale completion has changed something")
	}
	in.ExpectedAssignmentFence = stale.Assignment.Fence
	r := must(w.k.CompleteMessage(ctx, w.by(), in))(t)
	if r.Todo.Status != "resolved" || r.Answer.ReplyTo != todo.MessageID || r.Answer.Kind != "answer" || !r.StateChanged {
		t.Fatalf("%+v", r)
	}
	in.CompletionKey = " k "
	in.Priority, in.Tags = ptr("normal"), []string{} // what is left out is the same
	if again := must(w.k.CompleteMessage(ctx, w.by(), in))(t); !again.Replayed || again.StateChanged || again.Answer.MessageID != r.Answer.MessageID {
		t.Errorf("%+v", again)
	}
	for name, tt := range map[string]struct {
		kind   string
		change func(*workflow.CompleteMessage)
	}{
		"another answer":   {"idempotency_conflict", func(x *workflow.CompleteMessage) { x.Answer = "other" }},
		"another fence":    {"idempotency_conflict", func(x *workflow.CompleteMessage) { x.ExpectedAssignmentFence = a.Fence }},
		"another priority": {"idempotency_conflict", func(x *workflow.CompleteMessage) { x.Priority = ptr("high") }},
		"another key":      {"already_completed", func(x *workflow.CompleteMessage) { x.CompletionKey = "k2" }},
		"no fence":         {"invalid_assignment_fence", func(x *workflow.CompleteMessage) { x.ExpectedAssignmentFence = a.Fence + " " }},
		"an older fence":   {"invalid_assignment_fence", func(x *workflow.CompleteMessage) { x.ExpectedAssignmentFence = "wsa1_" + strings.Repeat("A", 43) }},
		"8001 characters":  {"invalid_session_message", func(x *workflow.CompleteMessage) { x.Answer = strings.Repeat("x", 8001) }},
		"a long key":       {"invalid_completion_key", func(x *workflow.CompleteMessage) { x.CompletionKey = strings.Repeat("x", 129) }},
		"no todo":          {"session_message_not_todo", func(x *workflow.CompleteMessage) { x.MessageID, x.CompletionKey = guidance.MessageID, "k3" }},
		"unknown message":  {"unknown_message_id", func(x *workflow.CompleteMessage) { x.MessageID = "wc_msg_AAAAAAAAAAAAAAAA" }},
		"unknown session":  {"unknown_session_id", func(x *workflow.CompleteMessage) { x.SessionID = "wc_sess_AAAAAAAAAAAAAAAA" }},
	} {
		bad := in
		tt.change(&bad)
		w.refused(tt.kind, func() error { _, err := w.k.CompleteMessage(ctx, w.by(), bad); return err })
		if t.Failed() {
			t.Fatal(name)
		}
	}
	// Closing the session does not take the answer back.
	must(w.k.CloseSession(ctx, w.by(), workflow.CloseSession{SessionID: c.SessionID}))(t)
	if again := must(w.k.CompleteMessage(ctx, w.by(), in))(t); !again.Replayed {
		t.Errorf("%+v", again)
	}
}

func TestAnAssignmentWithTooManyReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	todo := w.say(c, "todo", "do it")
	for i := range 16 {
		w.say(c, "note", fmt.Sprint(i), replyTo(todo.MessageID))
	}
	if a := w.assignment(c, todo.MessageID); len(a.Replies) != 16 {
		t.Fatalf("%d replies", len(a.Replies))
	}
	w.say(c, "note", "one more", replyTo(todo.MessageID))
	w.refused("assignment_too_large", func() error {
		_, err := w.k.GetAssignment(ctx, w.by(), workflow.GetAssignment{SessionID: c.SessionID, MessageID: todo.MessageID})
		return err
	})
}

func TestAcknowledging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	ask := func(p *workflow.PostMessage) { p.RequiresAck = ptr(true) }
	var ids []string
	for range 4 {
		ids = append(ids, w.say(c, "guidance", "read me", ask).MessageID)
	}
	plain := w.say(c, "note", "x").MessageID
	at := must(w.k.Attention(ctx, w.by(), c.SessionID))(t)
	if at.RequiresAck != 4 || len(at.Messages) != 3 || at.OmittedCount != 1 || at.Messages[0].MessageID != ids[0] {
		t.Fatalf("%+v", at)
	}
	r := must(w.k.Ack(ctx, w.by(), c.SessionID, []string{ids[0], ids[0], plain, "nobody"}))(t)
	if r.Accepted != 1 || r.Ignored != 3 {
		t.Errorf("%+v", r)
	}
	if r := must(w.k.Ack(ctx, w.by(), c.SessionID, []string{ids[0]}))(t); r.Accepted != 0 {
		t.Errorf("%+v", r)
	}
	w.refused("invalid_session_message", func() error { _, err := w.k.Ack(ctx, w.by(), c.SessionID, repeat(ids[1], 9)); return err })
	if at := must(w.k.Attention(ctx, w.by(), c.SessionID))(t); at.RequiresAck != 3 {
		t.Errorf("%+v", at)
	}
	// What is too long for a notice is left out, whole.
	w.say(c, "guidance", strings.Repeat("x", 3100), ask)
	must(w.k.Ack(ctx, w.by(), c.SessionID, ids))(t)
	if at := must(w.k.Attention(ctx, w.by(), c.SessionID))(t); at.RequiresAck != 1 || len(at.Messages) != 0 || at.OmittedCount != 1 {
		t.Errorf("%+v", at)
	}
}

func TestResolveMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	q := w.say(c, "question", "why?")
	todo := w.say(c, "todo", "do it")
	in := workflow.ResolveMessage{SessionID: c.SessionID, MessageID: q.MessageID, Resolution: " because "}
	if r := must(w.k.ResolveMessage(ctx, w.by(), in))(t); !r.StateChanged || r.Message.Resolution != "because" || r.Message.Status != "resolved" {
		t.Fatalf("%+v", r)
	}
	if r := must(w.k.ResolveMessage(ctx, w.by(), in))(t); !r.Replayed {
		t.Errorf("%+v", r)
	}
	for kind, change := range map[string]func(*workflow.ResolveMessage){
		"session_message_not_open": func(r *workflow.ResolveMessage) { r.Resolution = "no" },
		"session_message_is_todo":  func(r *workflow.ResolveMessage) { r.MessageID = todo.MessageID },
		"unknown_message_id":       func(r *workflow.ResolveMessage) { r.MessageID = "x" },
		"invalid_session_message":  func(r *workflow.ResolveMessage) { r.Resolution = " " },
		"unknown_session_id":       func(r *workflow.ResolveMessage) { r.SessionID = "x" },
	} {
		bad := in
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.ResolveMessage(ctx, w.by(), bad); return err })
	}
}

func TestSessionContextAndClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	in := workflow.UpdateSessionContext{Project: c.Project, SessionID: c.SessionID, ExecutionContext: workflow.ExecutionContext{DefaultCwd: ptr("/w"), DefaultShell: ptr("bash")}}
	if r := must(w.k.UpdateSessionContext(ctx, w.by(), in))(t); !r.Changed || r.ContextRevision != 1 || r.Previous.DefaultCwd != nil {
		t.Fatalf("%+v", r)
	}
	if r := must(w.k.UpdateSessionContext(ctx, w.by(), in))(t); r.Changed || r.ContextRevision != 1 {
		t.Fatalf("%+v", r)
	}
	for kind, change := range map[string]func(*workflow.UpdateSessionContext){
		"session_project_mismatch":  func(u *workflow.UpdateSessionContext) { u.Project = "other" },
		"unknown_session_id":        func(u *workflow.UpdateSessionContext) { u.SessionID = "x" },
		"invalid_execution_context": func(u *workflow.UpdateSessionContext) { u.ExecutionContext.DefaultShell = ptr("zsh") },
	} {
		bad := in
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.UpdateSessionContext(ctx, w.by(), bad); return err })
	}
	for _, r := range []string{"", "a b", strings.Repeat("x", 81)} {
		bad := in
		bad.ExecutionContext.Resource = &r
		w.refused("invalid_execution_context", func() error { _, err := w.k.UpdateSessionContext(ctx, w.by(), bad); return err })
	}
	if v := must(w.k.Recorder(ctx, w.owner, "~s1"))(t); v.SessionID != c.SessionID {
		t.Errorf("%+v", v)
	}
	w.refused("unknown_session_id", func() error { _, err := w.k.Recorder(ctx, w.owner, "~s2"); return err })
	w.refused("unknown_session_id", func() error { _, err := w.k.Recorder(ctx, "m-2", c.SessionID); return err })
	if r := must(w.k.CloseSession(ctx, w.by(), workflow.CloseSession{SessionID: c.SessionID}))(t); r.AlreadyClosed || !r.StateChanged || r.Lifecycle != "closed" {
		t.Fatalf("%+v", r)
	}
	if r := must(w.k.CloseSession(ctx, w.by(), workflow.CloseSession{SessionID: c.SessionID}))(t); !r.AlreadyClosed || r.StateChanged {
		t.Fatalf("%+v", r)
	}
	w.refused("session_closed", func() error { _, err := w.k.Recorder(ctx, w.owner, c.SessionID); return err })
	w.refused("session_closed", func() error { _, err := w.k.UpdateSessionContext(ctx, w.by(), in); return err })
	w.refused("session_closed", func() error {
		_, err := w.k.PostMessage(ctx, w.by(), workflow.PostMessage{SessionID: c.SessionID, Kind: "note", Message: "late"})
		return err
	})
}
