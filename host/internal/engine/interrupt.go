package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// interruptWait is the most that a stop waits for the agent to let go of what it
// does, before the cell is frozen (rulings 42).
const interruptWait = 250 * time.Millisecond

// featureInterrupt is the feature of cell agents that take input under the latch.
const featureInterrupt = "interrupt"

// interrupt is a rung of the stop ladder: it asks the runtime plugin to
// interrupt its agent. What comes of it is noted for the receipt; whatever it
// is, the freeze follows.
func (s *liveSession) interrupt(ctx context.Context, conn *cell.Conn) {
	if !s.byMessage() || s.a.state().Paused || s.a.state().Phase != mission.PhaseLive {
		return
	}
	l := ladderLog{now: s.eng.now}
	l.climb("interrupt", func() string {
		if !slices.Contains(conn.Hello().GetFeatures(), featureInterrupt) {
			return "not possible: the cell agent is too old"
		}
		timer := time.NewTimer(interruptWait)
		defer timer.Stop()
		told := make(chan bool, 1)
		tell := func() { // a plugin that does not read may block it
			told <- s.rt.tell(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Interrupt{Interrupt: &pluginv1.Interrupt{}}})
		}
		go tell()
		unanswered := fmt.Sprintf("not answered within %v", interruptWait)
		late := unanswered
		for {
			select {
			case ok := <-told:
				if ok {
					late = unanswered
					break
				}
				late = "failed: the runtime plugin is not there" // it may be on its way
				time.AfterFunc(interruptWait/10, tell)
			case <-s.rt.interrupted:
				return "done"
			case ev := <-conn.Events():
				if ev.Exited.GetSessionId() == s.id {
					return "done: the session has ended"
				}
			case <-conn.Done():
				return "failed: the cell link is down"
			case <-timer.C:
				return late
			case <-ctx.Done():
				return "failed: the host is going away"
			}
		}
	})
	s.a.interrupted.Store(&l.rungs[0])
}

// write takes a Write of the plugin. Once the mission is being stopped, only what
// interrupts its agent is written.
func (s *liveSession) write(ctx context.Context, w *pluginv1.Write) error {
	conn := s.conn.Load()
	switch {
	case conn == nil:
		return nil
	case !s.a.latch.Load():
		err := unlessEnded(conn.Input(ctx, s.id, w.GetKey(), w.GetData(), s.gen))
		if err != nil && s.a.latch.Load() {
			return nil // the cell agent has refused it
		}
		return err
	case w.GetInterrupt():
		return unlessEnded(conn.Interrupt(ctx, s.id, w.GetKey(), w.GetData(), s.gen))
	default:
		return nil
	}
}
