package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

const (
	// giveUpWait is how long a session that its runtime has given up may take to
	// end by itself: the plugin has closed its input.
	giveUpWait = 5 * time.Second
	// giveUpGrace is between SIGTERM and SIGKILL then.
	giveUpGrace = 2 * time.Second
)

// givenUp is a session with which its runtime cannot go on.
type givenUp struct {
	why    atomic.Pointer[string] // nil: it has not been given up
	at     atomic.Int64           // on the clock that cannot be set
	ending atomic.Bool            // it is being killed
}

// giveUp notes a fatal problem of the runtime plugin; the first one counts. The
// session ends, by itself or by endGivenUp, and the mission with it.
func (s *liveSession) giveUp(why string) {
	if why == "" {
		why = "the runtime cannot go on with the session, and says no reason"
	}
	if s.given.why.CompareAndSwap(nil, &why) {
		s.given.at.Store(int64(s.eng.uptime()))
	}
}

// endGivenUp kills what is left of a session that was given up and has not
// ended: whatever it does, nobody can follow or govern it any more.
func (s *liveSession) endGivenUp(conn *cell.Conn) {
	at := s.given.at.Load()
	if at == 0 || s.eng.uptime()-time.Duration(at) < giveUpWait || s.a.state().Paused || !s.given.ending.CompareAndSwap(false, true) {
		return
	}
	s.eng.goRun(func(ctx context.Context) {
		defer s.given.ending.Store(false) // its exit ends the matter; a kill that failed is tried again
		ctx, cancel := context.WithTimeout(ctx, giveUpGrace+cell.DefaultTimeout)
		defer cancel()
		if err := conn.Kill(ctx, s.id, giveUpGrace, s.gen); err != nil && ctx.Err() == nil {
			s.eng.log.Warn("a session that its runtime has given up could not be ended yet", "mission", s.a.id, "error", err)
		}
	})
}

// endOf is the package's endOf, with what the runtime knows better than an exit
// code can say.
func (s *liveSession) endOf(x *cellv1.Exited, r *pluginv1.Result) mission.Ended {
	end := endOf(x, r)
	if why := s.given.why.Load(); why != nil {
		end.State, end.Reason, end.Error = mission.StateFailed, "dispatch_error", *why
		return end
	}
	if s.plan.GetBoundary() != pluginv1.Boundary_BOUNDARY_PROTOCOL || r == nil || r.GetOk() || end.State != mission.StateFailed {
		return end
	}
	if r.GetReason() != "" {
		end.Reason = r.GetReason()
	}
	if r.GetSummary() != "" && !x.GetOom() {
		end.Error = r.GetSummary()
	}
	return end
}
