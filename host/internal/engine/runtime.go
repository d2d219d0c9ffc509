package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/session"
	"github.com/airlock-host/airlock/host/internal/store"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// maxLine is the longest line that a runtime is shown as one piece.
const maxLine = 16 << 20

// runtimeLink keeps a stream to the runtime plugin open for as long as the
// session lives. A plugin that dies is dialled again; it gets the output from
// its last checkpoint, and whatever state it must know.
type runtimeLink struct {
	s *liveSession

	mu      sync.Mutex
	blocked *pluginv1.Waiting // the last one; sent again on a new stream
	exit    *pluginv1.Exit
	news    chan struct{} // cap 1: blocked or exit has changed

	once    sync.Once
	results chan *pluginv1.Result

	letGo       sync.Once
	interrupted chan struct{} // closed when the agent was interrupted for a stop

	sendMu sync.Mutex
	send   func(*pluginv1.RunRequest) error // of the stream that is open; nil: none
}

func newRuntimeLink(s *liveSession) *runtimeLink {
	return &runtimeLink{s: s, news: make(chan struct{}, 1), results: make(chan *pluginv1.Result, 1), interrupted: make(chan struct{})}
}

func (r *runtimeLink) poke() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *runtimeLink) exited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit != nil
}

// waiting passes on that the session is blocked reading its terminal.
func (r *runtimeLink) waiting(w *cellv1.Waiting) {
	r.mu.Lock()
	r.blocked = &pluginv1.Waiting{Since: w.GetSince(), ScreenLine: w.GetScreenLine(), Offset: w.GetOffset()}
	r.mu.Unlock()
	r.poke()
}

func (r *runtimeLink) setSend(send func(*pluginv1.RunRequest) error) {
	r.sendMu.Lock()
	r.send = send
	r.sendMu.Unlock()
}

// tell sends a message on the stream that is open. A plugin that is away asks
// again when it is back.
func (r *runtimeLink) tell(m *pluginv1.RunRequest) bool {
	r.sendMu.Lock()
	send := r.send
	r.sendMu.Unlock()
	return send != nil && send(m) == nil
}

// answer sends the answer to a question of the plugin, or why there is none.
func (r *runtimeLink) answer(id, text, none string) {
	a := &pluginv1.Answer{HitlId: id, Text: text, None: none}
	if t := strings.TrimSpace(text); strings.HasPrefix(t, "{") && json.Valid([]byte(t)) {
		a.Structured = []byte(t)
	}
	r.tell(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Answer{Answer: a}})
}

// result tells the plugin of the exit and gives its view of it; nil when it
// has none in time, and the exit alone decides.
func (r *runtimeLink) result(ctx context.Context, x *pluginv1.Exit) *pluginv1.Result {
	r.mu.Lock()
	r.exit = x
	r.mu.Unlock()
	r.poke()
	t := time.NewTimer(resultWait)
	defer t.Stop()
	select {
	case res := <-r.results:
		return res
	case <-t.C:
		r.s.eng.log.Warn("the runtime gave no result; the exit alone decides", "mission", r.s.a.id)
	case <-ctx.Done():
	}
	return nil
}

// run keeps the stream open until the plugin has given its result or the
// context ends.
func (r *runtimeLink) run(ctx context.Context) {
	pause := 50 * time.Millisecond
	for ctx.Err() == nil {
		done, err := r.stream(ctx)
		if done || ctx.Err() != nil {
			return
		}
		r.s.eng.log.Warn("stream to the runtime broke; it is opened again", "mission", r.s.a.id, "error", err)
		if wait(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// stream runs one stream to its end.
func (r *runtimeLink) stream(ctx context.Context) (done bool, err error) {
	s := r.s
	client, err := s.eng.opts.Plugins.Runtime(s.spec.Runtime)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Run(ctx)
	if err != nil {
		return false, err
	}
	m := s.a.state()
	open := &pluginv1.Open{Mission: missionSpec(m, s.spec), SessionId: s.id, Plan: s.plan, Generation: s.gen}
	if st, err := s.eng.opts.Store.RuntimeState(ctx, s.a.id); err == nil {
		if open.State = st.State; st.Generation == s.gen { // else of an earlier session, whose output is past
			open.Offset = st.Offset
		}
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	var sendMu sync.Mutex
	send := func(m *pluginv1.RunRequest) error {
		sendMu.Lock()
		defer sendMu.Unlock()
		return stream.Send(m)
	}
	if err := send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Open{Open: open}}); err != nil {
		return false, err
	}
	r.setSend(send)
	defer r.setSend(nil)
	b := &boundary{s: s, send: send, caughtUp: make(chan struct{})}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if err := r.feed(ctx, open.Offset, b); err != nil && ctx.Err() == nil {
			s.eng.log.Debug("feeding the runtime ended", "mission", s.a.id, "error", err)
			if !errors.Is(err, io.EOF) { // else the stream has ended, and Recv says why
				cancel()
			}
		}
	}()
	var calls sync.WaitGroup
	defer func() { cancel(); <-fed; calls.Wait() }()
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if r.exited() {
				r.once.Do(func() { r.results <- nil }) // the exit alone decides
				return true, nil
			}
			return false, errors.New("the plugin closed the stream before the session had ended")
		}
		if err != nil {
			return false, err
		}
		if res := msg.GetResult(); res != nil {
			r.once.Do(func() { r.results <- res })
			return true, nil
		}
		if s.plan.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL && b.handle(ctx, msg, &calls) {
			continue
		}
		if err := r.handle(ctx, msg); err != nil {
			return false, err
		}
	}
}

// feed sends output as far as the plan asks, then what is new.
func (r *runtimeLink) feed(ctx context.Context, from uint64, b *boundary) error {
	send := b.send
	caught := r.s.log.Next()
	caughtUp := func() error {
		defer close(b.caughtUp)
		return send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{Offset: caught}}})
	}
	if r.s.plan.GetOutput() == pluginv1.OutputNeed_OUTPUT_NEED_NONE {
		if err := caughtUp(); err != nil {
			return err
		}
		return r.feedNews(ctx, send, nil)
	}
	outDone := make(chan struct{})
	errs := make(chan error, 1)
	go func() {
		defer close(outDone)
		errs <- r.feedOutput(ctx, from, caught, caughtUp, send)
	}()
	err := r.feedNews(ctx, send, outDone)
	<-outDone
	return errors.Join(err, <-errs)
}

// feedNews sends Waiting and, once all output was sent, Exit.
func (r *runtimeLink) feedNews(ctx context.Context, send func(*pluginv1.RunRequest) error, output <-chan struct{}) error {
	var sent *pluginv1.Waiting
	for {
		r.mu.Lock()
		blocked, exit := r.blocked, r.exit
		r.mu.Unlock()
		if blocked != nil && blocked != sent && exit == nil {
			if err := send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Waiting{Waiting: blocked}}); err != nil {
				return err
			}
			sent = blocked
		}
		if exit != nil {
			if output != nil {
				_ = r.s.log.Finish()
				<-output
			}
			return send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Exit{Exit: exit}})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.news:
		}
	}
}

func (r *runtimeLink) feedOutput(ctx context.Context, from, caught uint64, caughtUp func() error, send func(*pluginv1.RunRequest) error) error {
	lines := lineCutter{whole: r.s.plan.GetOutput() == pluginv1.OutputNeed_OUTPUT_NEED_LINES}
	told := false
	for {
		if !told && from >= caught {
			told = true
			if err := caughtUp(); err != nil {
				return err
			}
		}
		switch err := r.s.log.Wait(ctx, from); {
		case errors.Is(err, io.EOF):
			return lines.flush(send)
		case err != nil:
			return err
		}
		segments, err := r.s.log.ReadAt(from, 64<<10)
		if err != nil {
			return err
		}
		for _, seg := range segments {
			from = seg.Offset + uint64(len(seg.Data))
			if err := lines.add(seg, send); err != nil {
				return err
			}
		}
	}
}

// lineCutter holds output back until a line is whole, when it is asked to.
type lineCutter struct {
	whole bool
	held  []session.Segment // at most one a stream
}

func (c *lineCutter) add(seg session.Segment, send func(*pluginv1.RunRequest) error) error {
	if !c.whole {
		return sendOutput(seg, send)
	}
	at := -1
	for i := range c.held {
		if c.held[i].Stream == seg.Stream {
			at = i
		}
	}
	if at < 0 {
		c.held = append(c.held, session.Segment{Stream: seg.Stream, Offset: seg.Offset})
		at = len(c.held) - 1
	}
	h := &c.held[at]
	h.Data = append(h.Data, seg.Data...)
	cut := bytes.LastIndexByte(h.Data, '\n') + 1
	if cut == 0 && len(h.Data) < maxLine {
		return nil
	}
	if cut == 0 {
		cut = len(h.Data)
	}
	out := session.Segment{Stream: h.Stream, Offset: h.Offset, Data: bytes.Clone(h.Data[:cut])}
	h.Data = append(h.Data[:0], h.Data[cut:]...)
	h.Offset = seg.Offset + uint64(len(seg.Data)-len(h.Data))
	return sendOutput(out, send)
}

func (c *lineCutter) flush(send func(*pluginv1.RunRequest) error) error {
	for _, h := range c.held {
		if len(h.Data) > 0 {
			if err := sendOutput(h, send); err != nil {
				return err
			}
		}
	}
	return nil
}

func sendOutput(seg session.Segment, send func(*pluginv1.RunRequest) error) error {
	return send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: &pluginv1.Output{
		Stream: pluginv1.Stream(seg.Stream), Offset: seg.Offset, Data: seg.Data}}})
}

// handle takes one message of the plugin.
func (r *runtimeLink) handle(ctx context.Context, msg *pluginv1.RunResponse) error {
	s := r.s
	switch m := msg.GetMessage().(type) {
	case *pluginv1.RunResponse_Progress:
		return s.progress(m.Progress)
	case *pluginv1.RunResponse_Question:
		s.question(m.Question)
	case *pluginv1.RunResponse_Checkpoint:
		return s.checkpoint(ctx, m.Checkpoint)
	case *pluginv1.RunResponse_Write:
		return s.write(ctx, m.Write)
	case *pluginv1.RunResponse_Interrupted:
		r.letGo.Do(func() { close(r.interrupted) })
	case *pluginv1.RunResponse_CloseInput:
		if conn := s.conn.Load(); conn != nil {
			return unlessEnded(conn.CloseInput(ctx, s.id, s.gen))
		}
	case *pluginv1.RunResponse_Problem:
		s.eng.log.Warn("the runtime reports a problem", "mission", s.a.id, "fatal", m.Problem.GetFatal(), "message", m.Problem.GetMessage())
		if m.Problem.GetFatal() {
			s.giveUp(m.Problem.GetMessage())
		}
	case *pluginv1.RunResponse_Usage:
		if len(s.spec.Gateways) > 0 {
			return nil // counted where the calls went through
		}
		return s.a.spent(m.Usage.GetTokens(), m.Usage.GetCostMicroUsd())
	default:
		return fmt.Errorf("the plugin sent %T, which boundary none does not have", m)
	}
	return nil
}

// unlessEnded is nil for what came too late for a session: its end follows.
func unlessEnded(err error) error {
	if errors.Is(err, cell.ErrClosed) {
		return nil
	}
	return err
}

func (s *liveSession) progress(p *pluginv1.Progress) error {
	s.touch()
	pr := mission.Progress{Phase: p.GetPhase(), Iteration: p.Iteration, TokensUsed: p.Tokens, Summary: p.GetSummary(), PctDone: p.Pct}
	err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Report(s.gen, pr) }, nil)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		return nil // late: the mission has ended
	}
	return err
}

func (s *liveSession) checkpoint(ctx context.Context, c *pluginv1.Checkpoint) error {
	s.touch()
	return s.eng.opts.Store.Commit(ctx, store.Batch{Task: s.a.id, RuntimeState: &store.RuntimeState{
		MissionID: s.a.id, Generation: s.gen, Offset: c.GetOffset(), State: c.GetState()}})
}
