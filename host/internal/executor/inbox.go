package executor

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
)

const (
	// maxQueued is how many commands of one mission may wait.
	maxQueued = 16
	// maxBusy is how many missions may have commands under way.
	maxBusy = 1024
	// commandWait bounds one command; the engine's own deadlines are shorter.
	commandWait = 2 * time.Minute
)

// inbox carries out what serve sends: an inbound lifecycle event is a command,
// its direction is the only sign of it (contract 1.8). Commands of one mission
// run in order, an abort at once; missions do not wait for each other.
type inbox struct {
	x   *Executor
	wg  sync.WaitGroup
	ctx context.Context // of the commands; set by start

	mu       sync.Mutex
	queues   map[string][]inbound
	aborting map[string]bool
}

// inbound is one frame from serve. Members that it does not know are ignored.
type inbound struct {
	Event     string `json:"event"`
	MissionID string `json:"mission_id"`
	Data      struct {
		HITLID    string `json:"hitl_id"`
		Response  any    `json:"response"`
		Text      any    `json:"text"`
		Reason    string `json:"reason"`
		AbortedBy string `json:"aborted_by"`
	} `json:"data"`
}

func newInbox(x *Executor) *inbox {
	return &inbox{x: x, ctx: context.Background(), queues: map[string][]inbound{}, aborting: map[string]bool{}}
}

// start is called before the first frame; stop after the last one: it ends the
// commands that are under way.
func (b *inbox) start(ctx context.Context) (stop func()) {
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	return func() {
		cancel()
		b.wg.Wait()
	}
}

// frame takes one frame; it never blocks.
func (b *inbox) frame(raw []byte) {
	var in inbound
	if err := json.Unmarshal(raw, &in); err != nil {
		b.x.log.Warn("frame from the orchestrator is not an event", "bytes", len(raw))
		return
	}
	switch in.Event {
	case "mission.aborted":
		b.abort(in)
	case "mission.paused", "mission.resumed", "mission.hitl_responded":
		b.enqueue(in)
	default:
		b.x.log.Info("event from the orchestrator is ignored", "event", cut(in.Event, 100), "mission", cut(in.MissionID, maxMissionID))
	}
}

// abort does not wait behind a command that hangs; one per mission is enough.
func (b *inbox) abort(in inbound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.aborting[in.MissionID] {
		return
	}
	b.aborting[in.MissionID] = true
	b.wg.Go(func() {
		b.run(in)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.aborting, in.MissionID)
	})
}

func (b *inbox) enqueue(in inbound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, busy := b.queues[in.MissionID]
	if len(q) >= maxQueued || (!busy && len(b.queues) >= maxBusy) {
		b.x.log.Warn("command from the orchestrator is dropped: too many wait", "event", in.Event, "mission", cut(in.MissionID, maxMissionID))
		return
	}
	b.queues[in.MissionID] = append(q, in)
	if !busy {
		b.wg.Go(func() { b.serve(in.MissionID) })
	}
}

// serve runs one mission's commands until none is left.
func (b *inbox) serve(missionID string) {
	for {
		b.mu.Lock()
		q := b.queues[missionID]
		if len(q) == 0 {
			delete(b.queues, missionID)
			b.mu.Unlock()
			return
		}
		b.queues[missionID] = q[1:]
		b.mu.Unlock()
		b.run(q[0])
	}
}

func (b *inbox) run(in inbound) {
	ctx, cancel := context.WithTimeout(b.ctx, commandWait)
	defer cancel()
	if in.Event == "mission.hitl_responded" && in.MissionID == "" {
		in.MissionID = b.asker(in.Data.HITLID) // the seed's form leaves it out
	}
	log := b.x.log.With("event", in.Event, "mission", cut(in.MissionID, maxMissionID))
	view, err := b.x.opt.Engine.Mission(ctx, in.MissionID)
	if err != nil || view.Origin != mission.OriginOrchestrator {
		log.Info("event from the orchestrator is for no mission of its own and is ignored")
		return
	}
	if err := b.obey(ctx, in); err != nil {
		log.Warn("command from the orchestrator was not carried out", "error", err)
		if errors.Is(err, errIgnored) {
			return
		}
	} else if in.Event == "mission.aborted" || in.Event == "mission.hitl_responded" {
		return // the mission's own next event says what became of it
	}
	// Serve has moved its record already; it must show what is true.
	b.x.restate(in.MissionID)
}

var errIgnored = errors.New("ignored: it names no open question of the mission, or its answer is empty")

func (b *inbox) obey(ctx context.Context, in inbound) error {
	e, actor := b.x.opt.Engine, b.x.opt.Actor
	reason := cut(in.Data.Reason, 500)
	if reason == "" {
		reason = "operator_request"
	}
	switch in.Event {
	case "mission.paused":
		return e.Pause(ctx, in.MissionID, actor, reason)
	case "mission.resumed":
		return e.Resume(ctx, in.MissionID, actor, reason)
	case "mission.aborted":
		by := "operator"
		if in.Data.AbortedBy == "system" {
			by = "system"
		}
		return e.Abort(ctx, in.MissionID, actor, by, reason)
	}
	answer, _ := in.Data.Response.(string)
	if answer == "" {
		answer, _ = in.Data.Text.(string)
	}
	if answer == "" || in.Data.HITLID == "" || b.asker(in.Data.HITLID) != in.MissionID {
		return errIgnored
	}
	err := e.Answer(ctx, in.Data.HITLID, actor, answer)
	if errors.Is(err, engine.ErrNotFound) {
		return errIgnored
	}
	return err
}

// asker is the mission that asked an open question; empty: none.
func (b *inbox) asker(hitlID string) string {
	for _, q := range b.x.opt.Engine.Questions() {
		if q.HITLID == hitlID {
			return q.MissionID
		}
	}
	return ""
}
