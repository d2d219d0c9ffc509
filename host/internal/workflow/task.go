package workflow

import "context"

// Limits of tasks.
const (
	maxTasks       = 1000 // of an owner
	maxInstruction = 8192
	maxProject     = 256
	shownAttempts  = 20
)

// Operations whose keys are kept apart.
const (
	opCreateTask = "create_agent_task"
	opClaim      = "start_agent_task_attempt"
	opComplete   = "complete_agent_task_attempt"
)

// task is the stored form: State is as it was written, not as it reads now.
type task struct{ TaskSummary }

func (t *task) row() Row { return Row{Table: TableTasks, ID: t.TaskID, State: string(t.State)} }

func (t *task) terminal() bool { return t.State == TaskSucceeded || t.State == TaskFailed }

// agent is somebody that tasks are assigned to.
type agent struct {
	ID      string `json:"id"`
	Handle  string `json:"handle"`
	Display string `json:"display"`
}

func (a *agent) row() Row { return Row{Table: TableAgents, ID: a.ID} }

// agentOf checks that an agent that is named belongs to the owner.
func agentOf(r Reader, owner [32]byte, id *string) error {
	if id == nil {
		return nil
	}
	a, err := load[agent](r, TableAgents, owner, *id)
	if err == nil && a == nil {
		return refuse("agent_not_found", FixInput, "there is no such agent")
	}
	return err
}

func loadTask(r Reader, owner [32]byte, id string) (*task, error) {
	t, err := load[task](r, TableTasks, owner, id)
	if err == nil && t == nil {
		return nil, refuse("agent_task_not_found", FixInput, "there is no such agent task")
	}
	return t, err
}

// latest gives a task's newest attempt; nil when there is none.
func latest(r Reader, taskID string) (*attempt, error) {
	list, err := list[attempt](r, Query{Table: TableAttempts, By: ByParent, Key: taskID, Last: true, Limit: 1})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// summary is a task as it reads now, given its newest attempt.
func (t *task) summary(last *attempt, now int64) TaskSummary {
	s := t.TaskSummary
	if s.State == TaskActive && (last == nil || last.effective(now) == AttemptExpired && !last.Execution.blocks()) {
		s.State = TaskReady
	}
	return s
}

func (r TaskResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

// CreateTask makes an agent task and ties it to its goal.
func (k *Keeper) CreateTask(ctx context.Context, by Caller, in CreateTask) (TaskResult, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (TaskResult, error) { return k.createTask(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) createTask(tx Tx, owner [32]byte, in CreateTask) (out TaskResult, err error) {
	if err := in.normalize(); err != nil {
		return out, err
	}
	request := requestHash(opCreateTask, in)
	seen, err := replayed(tx, owner, opCreateTask, in.IdempotencyKey, request, "communication_idempotency_conflict")
	if err != nil {
		return out, err
	}
	now := k.now()
	if seen != nil {
		t, err := loadTask(tx, owner, seen.ResourceID)
		if err != nil {
			return out, err
		}
		last, err := latest(tx, t.TaskID)
		return TaskResult{Task: t.summary(last, now), GoalRevision: seen.Revision, Replayed: true}, err
	}
	if err := agentOf(tx, owner, in.AssigneeAgentID); err != nil {
		return out, err
	}
	if in.SessionID != nil {
		if _, err := loadSession(tx, owner, *in.SessionID); err != nil {
			return out, err
		}
	}
	switch n, err := tx.Count(Query{Table: TableTasks, By: ByOwner, Owner: owner}); {
	case err != nil:
		return out, err
	case n >= maxTasks:
		return out, refuse("agent_task_capacity_exceeded", UserAction, "there are as many agent tasks as there may be")
	}
	id, err := k.newID(tx, TableTasks, prefixTask)
	if err != nil {
		return out, err
	}
	revision := int64(0)
	if in.GoalID != nil {
		if revision, err = k.tie(tx, owner, *in.GoalID, id, now); err != nil {
			return out, err
		}
	}
	t := &task{TaskSummary{TaskID: id, Title: in.Title, Instruction: in.Instruction, AssigneeAgentID: value(in.AssigneeAgentID),
		Project: value(in.Project), GoalID: value(in.GoalID), SessionID: value(in.SessionID), State: TaskReady, CreatedAt: now, UpdatedAt: now}}
	tx.Insert(rowOf(owner, t))
	k.used(tx, owner, opCreateTask, in.IdempotencyKey, request, id, revision)
	return TaskResult{Task: t.TaskSummary, GoalRevision: revision, Created: true, StateChanged: true}, nil
}

// tie correlates a new task with a goal and gives the goal's revision.
func (k *Keeper) tie(tx Tx, owner [32]byte, goalID, taskID string, now int64) (int64, error) {
	g, err := loadGoal(tx, owner, goalID)
	if err != nil {
		return 0, err
	}
	if g.terminal() {
		return 0, withRevision(g, refuse("goal_terminal", NoAction, "the goal is completed or cancelled and does not change any more"))
	}
	g = g.copied()
	if _, err := g.correlate(correlatedTask, taskID, now); err != nil {
		return 0, err
	}
	tx.Update(rowOf(owner, g))
	return g.Summary.Revision, nil
}

func (in *CreateTask) normalize() (err error) {
	bad := func(text string) error { return refuse("invalid_agent_task", FixInput, text) }
	in.Title = trimmed(in.Title)
	if n := chars(in.Title); n < 1 || n > maxTitle {
		return bad("title must have 1 to 200 characters")
	}
	if len(in.Instruction) > maxInstruction || trimmed(in.Instruction) == "" {
		return bad("instruction must have 1 to 8192 bytes")
	}
	if p := in.Project; p != nil && (chars(*p) < 1 || chars(*p) > maxProject) {
		return bad("project must have 1 to 256 characters")
	}
	if a := in.AssigneeAgentID; a != nil && !isID(prefixAgent, *a) {
		return refuse("invalid_agent_id", FixInput, "assignee_agent_id is not the id of an agent")
	}
	if g := in.GoalID; g != nil {
		if err := goalID(*g); err != nil {
			return err
		}
	}
	in.IdempotencyKey, err = key(in.IdempotencyKey, "invalid_communication_idempotency_key")
	return err
}

func taskID(id string) error {
	if !isID(prefixTask, id) {
		return refuse("invalid_agent_task_id", FixInput, "task_id is not the id of an agent task")
	}
	return nil
}

// ReadTask reads an agent task with its newest attempts.
func (k *Keeper) ReadTask(ctx context.Context, by Caller, in ReadTask) (TaskView, error) {
	return view(ctx, k, ofTasks, func(r Reader) (TaskView, error) {
		out := TaskView{Attempts: []AttemptRecord{}}
		if err := taskID(in.TaskID); err != nil {
			return out, err
		}
		t, err := loadTask(r, by.Owner.Digest(), in.TaskID)
		if err != nil {
			return out, err
		}
		attempts, err := list[attempt](r, Query{Table: TableAttempts, By: ByParent, Key: t.TaskID, Last: true, Limit: shownAttempts})
		if err != nil {
			return out, err
		}
		now := k.now()
		var last *attempt
		for i, a := range attempts {
			if i == 0 {
				last = a
			}
			out.Attempts = append(out.Attempts, a.record(now))
		}
		out.Task = t.summary(last, now)
		return out, nil
	})
}
