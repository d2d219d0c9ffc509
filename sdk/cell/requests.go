package cell

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// Bind claims the cell for a mission. Repeating it is harmless; a higher
// generation takes over, a lower one is ErrStale, another mission ErrConflict.
func (c *Conn) Bind(ctx context.Context, mission string, generation uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Bind{
		Bind: &cellv1.Bind{Mission: mission, Generation: generation}}})
	return err
}

// Latch sets the stop latch. When it returns nil the agent starts nothing,
// writes nothing and dials nothing any more; it cannot be lifted.
func (c *Conn) Latch(ctx context.Context, epoch uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Latch{Latch: &cellv1.Latch{Epoch: epoch}}})
	return err
}

// Start starts a session. The same (session_id, generation) again starts
// nothing and answers the same, also when the session has ended.
// ErrStartFailed = the program could not be started; ErrClosed = the session
// has ended and was forgotten; ErrConflict = the id has another generation.
func (c *Conn) Start(ctx context.Context, s *cellv1.Start) (*cellv1.Started, error) {
	r, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Start{Start: s}})
	if err != nil {
		return nil, err
	}
	if r.GetStarted() == nil {
		return nil, &Error{Code: cellv1.ErrorCode_ERROR_CODE_INTERNAL, Message: "no answer to start"}
	}
	return r.GetStarted(), nil
}

// Signal sends a signal to the session's foreground process group. signal is
// its number on Linux.
func (c *Conn) Signal(ctx context.Context, session string, signal int32, generation uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Signal{
		Signal: &cellv1.Signal{SessionId: session, Signal: signal, Generation: generation}}})
	return err
}

// Resize changes the size of a session's terminal.
func (c *Conn) Resize(ctx context.Context, session string, cols, rows uint32) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Resize{
		Resize: &cellv1.Resize{SessionId: session, Size: &cellv1.TerminalSize{Cols: cols, Rows: rows}}}})
	return err
}

// Input writes to a session, whole, and once per key: after an error of the
// link, or a deadline, send it again with the same key. It returns when the
// bytes are written, so it waits for a workload that does not read.
func (c *Conn) Input(ctx context.Context, session, key string, data []byte, generation uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Input{
		Input: &cellv1.Input{SessionId: session, Key: key, Data: data, Generation: generation}}})
	return err
}

// Interrupt is Input that reaches a session under the stop latch too. It needs
// the agent's feature "interrupt".
func (c *Conn) Interrupt(ctx context.Context, session, key string, data []byte, generation uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Input{
		Input: &cellv1.Input{SessionId: session, Key: key, Data: data, Generation: generation, Interrupt: true}}})
	return err
}

// CloseInput closes a session's standard input behind what was written, or
// sends a terminal's end-of-file character.
func (c *Conn) CloseInput(ctx context.Context, session string, generation uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_CloseInput{
		CloseInput: &cellv1.CloseInput{SessionId: session, Generation: generation}}})
	return err
}

// Kill ends everything that a session started ("" = every session). With a
// grace it asks first, by SIGTERM. When it returns nil, nothing of it is left.
// generation 0 = whatever generation. Without a deadline in ctx it waits for
// the grace and DefaultTimeout.
func (c *Conn) Kill(ctx context.Context, session string, grace time.Duration, generation uint64) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace+DefaultTimeout)
		defer cancel()
	}
	k := &cellv1.Kill{SessionId: session, Generation: generation}
	if grace > 0 {
		k.Grace = durationpb.New(grace)
	}
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Kill{Kill: k}})
	return err
}

// Ack says that everything before offset is safe at the host. The agent
// forgets it.
func (c *Conn) Ack(ctx context.Context, session string, offset uint64) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Ack{
		Ack: &cellv1.Ack{SessionId: session, Offset: offset}}})
	return err
}

// AckExit says that the session's end is safe at the host. The agent forgets
// the session. ErrConflict = it still runs.
func (c *Conn) AckExit(ctx context.Context, session string) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_AckExit{AckExit: &cellv1.AckExit{SessionId: session}}})
	return err
}

// AskAnswer answers a question, or with errText says why there is no answer.
// When it returns nil the asking process has it. Repeating it is harmless.
func (c *Conn) AskAnswer(ctx context.Context, askID, text, errText string) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_AskAnswer{
		AskAnswer: &cellv1.AskAnswer{AskId: askID, Text: text, Error: errText}}})
	return err
}

// Ping asks whether the agent is there.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Ping{Ping: &cellv1.Ping{}}})
	return err
}

// PutFiles places files: each is written beside its path and renamed over it.
func (c *Conn) PutFiles(ctx context.Context, files []*cellv1.File) error {
	_, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_PutFiles{PutFiles: &cellv1.PutFiles{Files: files}}})
	return err
}

// Stats says how the agent is.
func (c *Conn) Stats(ctx context.Context) (*cellv1.StatsReply, error) {
	r, err := c.call(ctx, &cellv1.HostFrame{Frame: &cellv1.HostFrame_Stats{Stats: &cellv1.Stats{}}})
	if err != nil {
		return nil, err
	}
	if r.GetStats() == nil {
		return nil, errors.New("cell agent: no answer to stats")
	}
	return r.GetStats(), nil
}
