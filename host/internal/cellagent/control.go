package cellagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// control reads the host's frames. It never waits for a session: whatever may
// take time runs beside it and replies when it is done.
func (a *Agent) control(l *link) {
	defer l.close()
	dec := cell.NewDecoder(l.control)
	for {
		f := new(cellv1.HostFrame)
		if err := dec.Decode(f); err != nil {
			if !errors.Is(err, io.EOF) && !l.mux.IsClosed() {
				a.log.warn("control stream ended", "error", err)
			}
			return
		}
		a.slack.active()
		a.handle(l, f)
	}
}

// handle takes one frame.
func (a *Agent) handle(l *link, f *cellv1.HostFrame) {
	done := func(err error) { l.answer(f.GetId(), nil, err) }
	switch v := f.GetFrame().(type) {
	case *cellv1.HostFrame_Bind:
		done(a.bind(v.Bind))
	case *cellv1.HostFrame_Latch:
		go func() { a.setLatch(v.Latch); done(nil) }()
	case *cellv1.HostFrame_Start:
		go func() {
			started, err := a.start(v.Start)
			l.answer(f.GetId(), &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Started{Started: started}}, err)
		}()
	case *cellv1.HostFrame_Signal:
		go func() { done(a.signal(v.Signal)) }()
	case *cellv1.HostFrame_Resize:
		done(a.with(v.Resize.GetSessionId(), func(s *session) error { return s.resize(v.Resize.GetSize()) }))
	case *cellv1.HostFrame_Input:
		a.putInput(v.Input, done)
	case *cellv1.HostFrame_CloseInput:
		a.closeInput(v.CloseInput, done)
	case *cellv1.HostFrame_Kill:
		go func() { done(a.handleKill(v.Kill)) }()
	case *cellv1.HostFrame_Ack:
		done(a.with(v.Ack.GetSessionId(), func(s *session) error { s.out.ack(v.Ack.GetOffset()); return nil }))
	case *cellv1.HostFrame_AckExit:
		done(a.ackExit(v.AckExit.GetSessionId()))
	case *cellv1.HostFrame_AskAnswer:
		go func() { done(a.asks.answer(v.AskAnswer)) }()
	case *cellv1.HostFrame_Ping:
		done(nil)
	case *cellv1.HostFrame_PutFiles:
		go func() { done(a.putFiles(v.PutFiles)) }()
	case *cellv1.HostFrame_Stats:
		go func() {
			l.answer(f.GetId(), &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Stats{Stats: stats()}}, nil)
		}()
	default:
		done(refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, "a frame that this agent does not know"))
	}
}

// answer replies to a frame; a host that gave no id wants no reply.
func (l *link) answer(id uint64, f *cellv1.AgentFrame, err error) {
	if id == 0 {
		return
	}
	if f == nil || err != nil {
		f = &cellv1.AgentFrame{}
	}
	f.Id = id
	if err != nil {
		f.Error = &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_INTERNAL, Message: err.Error()}
		var e *cell.Error
		if errors.As(err, &e) {
			f.Error = &cellv1.Error{Code: e.Code, Message: e.Message}
		}
	}
	l.reply(f)
}

func (a *Agent) with(id string, do func(*session) error) error {
	s, err := a.session(id)
	if err != nil {
		return err
	}
	return do(s)
}

func (a *Agent) signal(v *cellv1.Signal) error {
	if err := a.checkGeneration(v.GetGeneration()); err != nil {
		return err
	}
	return a.with(v.GetSessionId(), func(s *session) error { return s.signal(unix.Signal(v.GetSignal())) })
}

func (a *Agent) putInput(v *cellv1.Input, done func(error)) {
	err := a.checkGeneration(v.GetGeneration())
	if err == nil && !v.GetInterrupt() {
		err = a.checkLatch()
	}
	var s *session
	if err == nil {
		s, err = a.session(v.GetSessionId())
	}
	if err != nil {
		done(err)
		return
	}
	s.input.put(v.GetKey(), v.GetData(), v.GetInterrupt(), done)
}

func (a *Agent) closeInput(v *cellv1.CloseInput, done func(error)) {
	err := a.checkGeneration(v.GetGeneration())
	var s *session
	if err == nil {
		s, err = a.session(v.GetSessionId())
	}
	if err != nil {
		done(err)
		return
	}
	s.input.shutdown(done)
}

func (a *Agent) handleKill(v *cellv1.Kill) error {
	if g := v.GetGeneration(); g != 0 {
		if err := a.checkGeneration(g); err != nil {
			return err
		}
	}
	grace := time.Duration(0)
	if v.GetGrace() != nil {
		grace = v.GetGrace().AsDuration()
	}
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), grace+killTime)
	defer cancel()
	if v.GetSessionId() == "" {
		err = a.killAll(ctx, grace)
	} else {
		a.mu.Lock()
		s, gone := a.sessions[v.GetSessionId()], a.buried(v.GetSessionId()) != nil
		a.mu.Unlock()
		switch {
		case s == nil && gone:
			return nil
		case s == nil:
			return refuse(cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, "no such session")
		}
		err = a.kill(ctx, s, grace)
	}
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	return nil
}

// putFiles places files for the host. Unlike Start it is not refused by the
// latch: it runs nothing.
func (a *Agent) putFiles(v *cellv1.PutFiles) error {
	if err := placeFiles(v.GetFiles()); err != nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, err.Error())
	}
	return nil
}

func stats() *cellv1.StatsReply {
	r := &cellv1.StatsReply{AgentRss: residentBytes()}
	all, _ := descendants()
	for _, p := range all {
		if !p.dead() {
			r.Processes++
		}
	}
	return r
}
