package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// started is the state of a mission that has reported its progress; it is the
// only state there is.
const started = `{"v":1,"started":true}`

// Reasons of rulings 6.
const (
	reasonCode    = "non_zero_exit"
	reasonSignal  = "signal"
	reasonUnknown = "exit_unknown"
)

// Run follows one session.
func (c *command) Run(stream runtime.Stream) error {
	first, err := stream.Recv()
	if err != nil {
		return ignoreEOF(err)
	}
	open := first.GetOpen()
	if open == nil {
		return plugin.InvalidArgument("the first message of a session is not open")
	}
	if len(open.GetState()) == 0 {
		if err := begin(stream, open.GetOffset()); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return ignoreEOF(err)
		}
		switch m := m.GetMessage().(type) {
		case *pluginv1.RunRequest_Waiting:
			if q := c.question(open.GetSessionId(), m.Waiting); q != nil {
				err = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Question{Question: q}})
			}
		case *pluginv1.RunRequest_Exit:
			return stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Result{Result: result(m.Exit)}})
		}
		if err != nil {
			return err
		}
	}
}

// begin reports the one progress that a command makes, and then keeps that it
// did. A crash between the two reports it again, which is better than never.
func begin(stream runtime.Stream, offset uint64) error {
	err := stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Progress{
		Progress: &pluginv1.Progress{Phase: "execution", Summary: "the command was started"}}})
	if err != nil {
		return err
	}
	return stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Checkpoint{
		Checkpoint: &pluginv1.Checkpoint{State: []byte(started), Offset: offset}}})
}

// question is what a blocked read asks; nil = its line is no known prompt.
func (c *command) question(session string, w *pluginv1.Waiting) *pluginv1.Question {
	cfg := c.current.Load()
	if cfg == nil {
		return nil
	}
	line := w.GetScreenLine()
	for _, re := range cfg.prompts {
		if re.MatchString(line) {
			return &pluginv1.Question{HitlId: questionID(session, w.GetOffset()), Prompt: strings.TrimSpace(line)}
		}
	}
	return nil
}

// questionID is the same for the same blocked read, in this process and the
// next: nothing is written to the screen while it lasts.
func questionID(session string, offset uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", session, offset))
	return "read-" + hex.EncodeToString(sum[:12])
}

// result is what an exit means.
func result(e *pluginv1.Exit) *pluginv1.Result {
	switch {
	case e == nil || e.GetUnknown():
		return &pluginv1.Result{Reason: reasonUnknown, Summary: "nobody knows how the command ended"}
	case e.GetSignal() != 0:
		s := fmt.Sprintf("ended by signal %d (%s)", e.GetSignal(), syscall.Signal(e.GetSignal()))
		if e.GetOom() {
			s += ": out of memory"
		}
		return &pluginv1.Result{Reason: reasonSignal, Summary: s}
	case e.GetCode() != 0:
		return &pluginv1.Result{Reason: reasonCode, Summary: fmt.Sprintf("command exited with code %d", e.GetCode())}
	}
	return &pluginv1.Result{Ok: true, Summary: "command completed successfully"}
}

// ignoreEOF: the host closing its side is the end of a session, not an error.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
