package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// ErrNoCell says that a task has no cell in which anything could run now.
var ErrNoCell = errors.New("the task has no cell in which a command can run")

// CellCommand is a program to run in a mission's cell, beside its session.
type CellCommand struct {
	Argv []string
	// MaxOutput is how much of each stream is kept, in bytes: the end of it.
	MaxOutput int
}

// CellResult is how it ended.
type CellResult struct {
	ExitCode  int // 128 + the signal, as shells say it
	Stdout    []byte
	Stderr    []byte
	Truncated bool // something before what is there was dropped
}

// Exec runs a program in the mission's cell as a session of its own: the same
// uid, directory and limits, no terminal, no input, no way out. It ends with the
// mission; ctx ending kills it. ErrNoCell and *NotStarted: nothing was run; any
// other error: what became of it is not known.
func (e *Engine) Exec(ctx context.Context, taskID string, c CellCommand) (CellResult, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return CellResult{}, err
	}
	s := a.sess.Load()
	if s == nil || a.latch.Load() || a.state().Terminal() {
		return CellResult{}, ErrNoCell
	}
	return s.exec(ctx, c)
}

// NotStarted says that a program was not run.
type NotStarted struct{ Reason string }

func (n *NotStarted) Error() string { return n.Reason }

func (s *liveSession) exec(ctx context.Context, c CellCommand) (CellResult, error) {
	id := newUUID()
	end := make(chan *cellv1.Exited, 1)
	s.jobs.Store(id, end)
	defer s.jobs.Delete(id)
	facts := s.cell.CellFacts()
	f := &cellv1.Start{SessionId: id, Generation: s.gen, Argv: c.Argv, Cwd: s.plan.GetCwd(), Uid: facts.GetUid(), Gid: facts.GetGid(),
		OnFull: cellv1.OnFull_ON_FULL_BLOCK, Env: []string{"AIRLOCK_MISSION=" + s.a.id}}
	if f.Cwd == "" {
		f.Cwd = facts.GetWorkspace()
	}
	if f.Cwd != "" {
		f.Env = append(f.Env, "HOME="+f.Cwd)
	}
	conn := s.conn.Load()
	if _, err := conn.Start(ctx, f); err != nil {
		var refused *cell.Error
		if errors.As(err, &refused) {
			return CellResult{}, &NotStarted{Reason: refused.Message}
		}
		s.killJob(id) // the answer was lost: it may run
		return CellResult{}, fmt.Errorf("start in the cell: %w", err)
	}
	s.touch()
	_ = conn.CloseInput(ctx, id, s.gen)
	out := jobOutput{max: c.MaxOutput}
	for {
		err := s.readJob(ctx, conn, id, &out)
		if err == nil {
			break
		}
		if ctx.Err() == nil && errors.Is(err, cell.ErrLinkLost) {
			if conn = s.nextConn(ctx, conn); conn != nil {
				continue // the cell holds the output since the last acknowledgement
			}
		}
		s.killJob(id)
		return out.result(-1), fmt.Errorf("output of the command: %w", err)
	}
	select {
	case x := <-end:
		ack, cancel := context.WithTimeout(context.WithoutCancel(ctx), linkTimeout)
		defer cancel()
		_ = s.conn.Load().AckExit(ack, id)
		s.touch()
		code := int(x.GetCode())
		if x.GetSignal() != 0 {
			code = 128 + int(x.GetSignal())
		}
		return out.result(code), nil
	case <-ctx.Done():
		s.killJob(id)
		return out.result(-1), ctx.Err()
	case <-s.a.launchCtx().Done():
		return out.result(-1), errStopped
	}
}

// readJob reads a command's output to its end.
func (s *liveSession) readJob(ctx context.Context, conn *cell.Conn, id string, out *jobOutput) error {
	r, err := conn.ReadOutput(ctx, id, out.next)
	if err != nil {
		return err
	}
	defer r.Close()
	acked := out.next
	for {
		f, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case f.GetData() != nil:
			out.add(f.GetData())
		case f.GetGap() != nil:
			out.truncated = true
		case f.GetEnd() != nil:
			return conn.Ack(ctx, id, out.next)
		}
		if out.next-acked >= ackEvery {
			if err := conn.Ack(ctx, id, out.next); err != nil {
				return err
			}
			acked = out.next
		}
	}
}

// ackEvery is how much of a command's output is read before the cell may forget
// it; it holds 4 MiB.
const ackEvery = 256 << 10

// nextConn waits for the link that comes after one; nil: there is none.
func (s *liveSession) nextConn(ctx context.Context, old *cell.Conn) *cell.Conn {
	for ctx.Err() == nil && !s.a.latch.Load() && !s.a.state().Terminal() {
		if c := s.conn.Load(); c != old {
			return c
		}
		_ = wait(ctx, 20*time.Millisecond)
	}
	return nil
}

// killJob ends a command whose caller has gone.
func (s *liveSession) killJob(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), linkTimeout)
	defer cancel()
	conn := s.conn.Load()
	if conn.Kill(ctx, id, 0, s.gen) == nil {
		_ = conn.AckExit(ctx, id)
	}
}

// foundJob takes up a command that the cell holds when a link is opened. One of
// an earlier life of the host has nobody who waits for it, and is ended.
func (s *liveSession) foundJob(st *cellv1.SessionState) {
	if _, mine := s.jobs.Load(st.GetSessionId()); !mine {
		s.killJob(st.GetSessionId())
	} else if st.GetExited() != nil {
		s.jobEnded(st.GetExited())
	}
}

// jobEnded passes on that a command has ended.
func (s *liveSession) jobEnded(x *cellv1.Exited) {
	if end, ok := s.jobs.Load(x.GetSessionId()); ok {
		select {
		case end.(chan *cellv1.Exited) <- x:
		default: // said before
		}
	}
}

// jobOutput keeps the end of a command's output.
type jobOutput struct {
	max            int
	next           uint64 // offset behind what was read
	stdout, stderr []byte
	truncated      bool
}

func (o *jobOutput) add(d *cellv1.OutputData) {
	o.next = d.GetOffset() + uint64(len(d.GetData()))
	to := &o.stdout
	if d.GetStream() == cellv1.Stream_STREAM_STDERR {
		to = &o.stderr
	}
	*to = append(*to, d.GetData()...)
	if over := len(*to) - o.max; over > 0 {
		*to = append([]byte(nil), (*to)[over:]...)
		o.truncated = true
	}
}

func (o *jobOutput) result(code int) CellResult {
	return CellResult{ExitCode: code, Stdout: o.stdout, Stderr: o.stderr, Truncated: o.truncated}
}
