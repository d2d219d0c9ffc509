package workflow

import (
	"context"
	"strings"
)

// FinishTask computes the outcome of the work in a session from facts of the
// store. It changes nothing: neither a goal nor a session is closed by it.
func (k *Keeper) FinishTask(ctx context.Context, by Caller, in FinishTask) (FinishResult, error) {
	governed := GovernedCalls{}
	if k.opts.Governed != nil {
		var err error
		if governed, err = k.opts.Governed(ctx, by.Owner); err != nil {
			return FinishResult{}, &Error{Kind: string(ofSessions), Message: "the mission's calls cannot be read now; nothing was changed", Recovery: RetrySame, cause: err}
		}
	}
	return view(ctx, k, ofSessions, func(r Reader) (FinishResult, error) {
		owner := by.Owner.Digest()
		s, err := loadSession(r, owner, in.SessionID)
		if err != nil {
			return FinishResult{}, err
		}
		if s.Project != in.Project {
			return FinishResult{}, refuse("session_project_mismatch", FixInput, "the session belongs to another project")
		}
		f := FinishFacts{UncheckedOutputs: len(in.Outputs)}
		for _, add := range []func() error{
			func() error { return f.messages(r, s) },
			func() error { return f.calls(r, owner, by, governed) },
			func() error { return f.tasks(r, owner, s, k.now()) },
			func() error { return f.goal(r, owner, s) },
		} {
			if err := add(); err != nil {
				return FinishResult{}, err
			}
		}
		return FinishResult{TaskOutcome: f.outcome(), Facts: f}, nil
	})
}

func (f *FinishFacts) messages(r Reader, s *session) error {
	rows, err := r.List(Query{Table: TableMessages, By: ByParent, Key: s.ID, Open: true})
	for _, row := range rows {
		for mark, n := range map[string]*int{markTodo: &f.OpenTodos, markAck: &f.UnackedMessages, markQuestion: &f.OpenQuestions} {
			if strings.Contains(row.State, mark) {
				*n++
			}
		}
	}
	return err
}

// calls counts what runs and what nobody knows the end of. A call that is both
// governed and has a row counts once; the question itself does not count.
func (f *FinishFacts) calls(r Reader, owner [32]byte, by Caller, g GovernedCalls) error {
	rows, err := list[invocation](r, Query{Table: TableInvocations, By: ByOwner, Owner: owner, Open: true})
	if err != nil {
		return err
	}
	unknown, running := map[string]bool{}, map[string]bool{}
	for _, c := range g.Unresolved {
		unknown[c.InvocationID] = true
	}
	for _, c := range g.Running {
		if c.InvocationID != by.Invocation && !asks(c.Tool) {
			running[c.InvocationID] = true
		}
	}
	for _, v := range rows {
		id := v.ID
		if v.CallID != "" {
			id = v.CallID
		}
		switch v.row().State {
		case callStarted:
			running[id] = true
		case callUnknown:
			if v.blocks() {
				unknown[id] = true
			} else {
				f.UnknownReads++
			}
		}
	}
	f.UnknownInvocations, f.RunningJobs = len(unknown), len(running)
	return nil
}

// asks says that a governed call is the very question, under whatever name the
// runtime knows the tool.
func asks(tool string) bool {
	return strings.HasSuffix(tool, "finish_coding_task") || strings.HasSuffix(tool, "call_runtime_tool")
}

// tasks counts the session's agent tasks that have failed, and attempts whose
// lease has passed.
func (f *FinishFacts) tasks(r Reader, owner [32]byte, s *session, now int64) error {
	tasks, err := list[task](r, Query{Table: TableTasks, By: ByOwner, Owner: owner})
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if t.SessionID != s.ID {
			continue
		}
		if t.State == TaskFailed {
			f.FailedAttempts++
		}
		if t.State != TaskActive {
			continue
		}
		a, err := latest(r, t.TaskID)
		if err != nil {
			return err
		}
		if a != nil && a.effective(now) == AttemptExpired {
			f.ExpiredAttempts++
		}
	}
	return nil
}

func (f *FinishFacts) goal(r Reader, owner [32]byte, s *session) error {
	run, err := loadRun(r, owner)
	if err != nil || run == nil || run.SessionID != s.ID {
		return err
	}
	g, err := load[goal](r, TableGoals, owner, run.GoalID)
	if err == nil && g != nil && !g.terminal() {
		f.UnfinishedSteps = g.unfinished()
	}
	return err
}

// outcome is the verdict: deterministic, from the facts alone.
func (f *FinishFacts) outcome() TaskOutcome {
	o := TaskOutcome{Status: "pass", BlockingReasons: []string{}, WarningReasons: []string{}}
	for _, x := range []struct {
		n      int
		reason string
		blocks bool
	}{
		{f.OpenTodos, "open_todos", true},
		{f.UnackedMessages, "unacknowledged_messages", true},
		{f.UnknownInvocations, "invocation_outcome_unknown", true},
		{f.RunningJobs, "jobs_running", true},
		{f.FailedAttempts, "attempt_failed", true},
		{f.OpenQuestions, "open_questions", false},
		{f.UnknownReads, "invocation_outcome_unknown_without_effect", false},
		{f.ExpiredAttempts, "attempt_lease_expired", false},
		{f.UnfinishedSteps, "unfinished_steps", false},
		{f.UncheckedOutputs, "outputs_not_checked", false},
	} {
		switch {
		case x.n == 0:
		case x.blocks:
			o.BlockingReasons = append(o.BlockingReasons, x.reason)
		default:
			o.WarningReasons = append(o.WarningReasons, x.reason)
		}
	}
	switch {
	case len(o.BlockingReasons) > 0:
		o.Status, o.Blocking = "fail", true
	case len(o.WarningReasons) > 0:
		o.Status = "warn"
	}
	return o
}
