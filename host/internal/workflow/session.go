package workflow

import (
	"context"
	"strconv"
	"strings"
)

// session is a workflow session: a thread of messages, with defaults for what is
// run in it.
type session struct {
	ID              string           `json:"id"`
	Number          int              `json:"number"` // of the owner's, for the selector
	Project         string           `json:"project,omitempty"`
	Mode            string           `json:"mode"`      // normal | read_only
	Lifecycle       string           `json:"lifecycle"` // active | closed
	Context         ExecutionContext `json:"context"`
	ContextRevision int64            `json:"context_revision"`
	Messages        int              `json:"messages"`
	CreatedAt       int64            `json:"created_at"`
	ClosedAt        int64            `json:"closed_at,omitempty"`
}

const (
	sessionActive   = "active"
	sessionClosed   = "closed"
	sessionNormal   = "normal"
	sessionReadOnly = "read_only"
)

func (s *session) row() Row { return Row{Table: TableSessions, ID: s.ID, State: s.Lifecycle} }

func (s *session) view() SessionView {
	return SessionView{SessionID: s.ID, Selector: "~s" + strconv.Itoa(s.Number), Project: s.Project, Mode: s.Mode, Lifecycle: s.Lifecycle, Context: s.Context}
}

// writable says whether anything of the session may change.
func (s *session) writable() error {
	switch {
	case s.Lifecycle != sessionActive:
		return refuse("session_closed", NoAction, "the session is closed")
	case s.Mode == sessionReadOnly:
		return refuse("session_authority_denied", UserAction, "the session is read only")
	}
	return nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func unknownSession() *Error {
	return refuse("unknown_session_id", FixInput, "there is no such session")
}

func loadSession(r Reader, owner [32]byte, id string) (*session, error) {
	s, err := load[session](r, TableSessions, owner, id)
	if err == nil && s == nil {
		return nil, unknownSession()
	}
	return s, err
}

// Recorder checks that the owner may speak as a session, given by its id or its
// selector.
func (k *Keeper) Recorder(ctx context.Context, owner Owner, id string) (SessionView, error) {
	return view(ctx, k, ofSessions, func(r Reader) (SessionView, error) {
		s, err := findSession(r, owner.Digest(), id)
		if err == nil {
			err = s.writable()
		}
		if err != nil {
			return SessionView{}, err
		}
		return s.view(), nil
	})
}

func findSession(r Reader, owner [32]byte, id string) (*session, error) {
	number, short := strings.CutPrefix(id, "~s")
	if !short {
		return loadSession(r, owner, id)
	}
	all, err := list[session](r, Query{Table: TableSessions, By: ByOwner, Owner: owner})
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if strconv.Itoa(s.Number) == number {
			return s, nil
		}
	}
	return nil, unknownSession()
}

func (r SessionContextResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.Changed}
}

// UpdateSessionContext replaces a session's defaults as a whole.
func (k *Keeper) UpdateSessionContext(ctx context.Context, by Caller, in UpdateSessionContext) (SessionContextResult, error) {
	return mutate(ctx, k, by, ofSessions, func(tx Tx) (out SessionContextResult, err error) {
		if err := in.ExecutionContext.check(); err != nil {
			return out, err
		}
		owner := by.Owner.Digest()
		s, err := loadSession(tx, owner, in.SessionID)
		if err != nil {
			return out, err
		}
		if err := s.inProject(in.Project); err != nil {
			return out, err
		}
		if err := s.writable(); err != nil {
			return out, err
		}
		out.Previous, out.Context = s.Context, in.ExecutionContext
		if out.Changed = !s.Context.equal(in.ExecutionContext); out.Changed {
			s.Context = in.ExecutionContext
			s.ContextRevision++
			tx.Update(rowOf(owner, s))
		}
		out.ContextRevision = s.ContextRevision
		return out, nil
	})
}

func (s *session) inProject(project string) error {
	switch s.Project {
	case "":
		return refuse("session_execution_context_requires_project", UserAction, "the session belongs to no project")
	case project:
		return nil
	}
	return refuse("session_project_mismatch", FixInput, "the session belongs to another project")
}

func (c ExecutionContext) check() error {
	bad := func(text string) error { return refuse("invalid_execution_context", FixInput, text) }
	if d := c.DefaultCwd; d != nil && (*d == "" || len(*d) > 4096 || strings.ContainsRune(*d, 0)) {
		return bad("default_cwd must have 1 to 4096 bytes and no NUL")
	}
	if s := c.DefaultShell; s != nil && *s != "sh" && *s != "bash" {
		return bad("default_shell must be sh or bash")
	}
	if r := c.Resource; r != nil {
		plain := strings.Trim(*r, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
		if len(*r) < 1 || len(*r) > 80 || !plain {
			return bad("resource must be 1 to 80 of A-Z a-z 0-9 _ . -")
		}
	}
	return nil
}

func (c ExecutionContext) equal(o ExecutionContext) bool {
	same := func(a, b *string) bool { return (a == nil) == (b == nil) && value(a) == value(b) }
	return same(c.DefaultCwd, o.DefaultCwd) && same(c.DefaultShell, o.DefaultShell) && same(c.Resource, o.Resource)
}

func (r CloseResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.AlreadyClosed}
}

// CloseSession closes a session; closing it again changes nothing.
func (k *Keeper) CloseSession(ctx context.Context, by Caller, in CloseSession) (CloseResult, error) {
	return mutate(ctx, k, by, ofSessions, func(tx Tx) (out CloseResult, err error) {
		owner := by.Owner.Digest()
		s, err := loadSession(tx, owner, in.SessionID)
		if err != nil {
			return out, err
		}
		out = CloseResult{SessionID: s.ID, Lifecycle: sessionClosed, AlreadyClosed: true}
		if s.Lifecycle == sessionClosed {
			return out, nil
		}
		if err := s.writable(); err != nil {
			return CloseResult{}, err
		}
		out.AlreadyClosed, out.StateChanged = false, true
		s.Lifecycle, s.ClosedAt = sessionClosed, max(k.now(), s.CreatedAt)
		tx.Update(rowOf(owner, s))
		return out, nil
	})
}
