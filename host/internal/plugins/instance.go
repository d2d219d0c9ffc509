package plugins

import (
	"context"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// State is how an instance is.
type State string

// The states of an instance.
const (
	Starting    State = "starting"
	Healthy     State = "healthy"
	Degraded    State = "degraded"    // it works, with a limit that the reason names
	Unavailable State = "unavailable" // no work now; it comes back by itself
	Quarantined State = "quarantined" // no work until the cause is removed
	Ended       State = "ended"       // the catalog is closed, or the instance was removed
)

// instance is one plugin block and the process that serves it now.
type instance struct {
	catalog *Catalog
	ref     string
	log     hclog.Logger
	ctx     context.Context // ends with the catalog or with the instance
	cancel  context.CancelFunc

	commands chan func()   // run by the supervisor, between its own steps
	settled  chan struct{} // closed when the instance was first usable or set aside
	settle   sync.Once
	ended    chan struct{} // closed when the supervisor has returned
	kick     chan struct{} // asks for a sign of life at once

	mu       sync.Mutex
	spec     config.Instance
	pending  *config.Instance // a config that only a new process can take over
	image    *image           // what the process runs; a relaunch uses it again
	current  *process         // nil: none that takes calls
	moved    chan struct{}    // closed at the next change
	state    State            // Starting, Quarantined or Ended; viewState has the rest
	since    time.Time
	fault    *Fault                   // why it is quarantined or being restarted
	health   *pluginv1.HealthResponse // the last one of the current process
	hung     string                   // why the current process counts as hung; empty: it does not
	hungAt   time.Time                // the last time that it missed a deadline
	ready    bool                     // it was configured since the last quarantine
	restarts int                      // after crashes, since the start of the host
	requeues int                      // quarantines in a row that were tried again
	lastExit string
	features []string // of the last process
	needs    []*pluginv1.Need
	retryAt  time.Time // when a quarantine is tried again; zero: never
}

func newInstance(c *Catalog, spec config.Instance) *instance {
	i := &instance{
		catalog: c, ref: spec.Ref(), spec: spec, log: c.log.With("plugin", spec.Ref()),
		commands: make(chan func()), settled: make(chan struct{}), ended: make(chan struct{}),
		kick: make(chan struct{}, 1), moved: make(chan struct{}), state: Starting, since: time.Now(),
	}
	i.ctx, i.cancel = context.WithCancel(c.ctx)
	return i
}

// change alters the instance under its lock and tells everybody who waits.
func (i *instance) change(alter func()) {
	i.mu.Lock()
	before, reasonBefore := i.viewState()
	alter()
	after, reason := i.viewState()
	if before != after {
		i.since = time.Now()
	}
	close(i.moved)
	i.moved = make(chan struct{})
	i.mu.Unlock()
	if before != after || reasonBefore != reason {
		i.log.Info("plugin state changed", "state", string(after), "before", string(before), "reason", reason)
	}
	if after != Starting {
		i.settle.Do(func() { close(i.settled) })
	}
	i.catalog.announce()
}

// viewState is the state that counts, and why. Called with the lock held.
func (i *instance) viewState() (State, string) {
	switch {
	case i.state == Quarantined:
		return Quarantined, i.fault.Error()
	case i.state == Ended:
		return Ended, "the plugin was ended"
	case i.current == nil && i.fault != nil:
		return Unavailable, "restarting: " + i.fault.Error()
	case i.current == nil:
		return Starting, "starting"
	case i.hung != "":
		return Unavailable, i.hung
	case i.health == nil:
		return Starting, "waiting for its first health message"
	}
	switch i.health.GetState() {
	case pluginv1.HealthState_HEALTH_STATE_HEALTHY:
		return Healthy, ""
	case pluginv1.HealthState_HEALTH_STATE_DEGRADED:
		return Degraded, i.health.GetReason()
	}
	return Unavailable, i.health.GetReason()
}

// adopt makes a process the current one; its image becomes the instance's. The
// caller takes care of what was there before. health is what it has said already;
// nil: nothing yet.
func (i *instance) adopt(p *process, img *image, health *pluginv1.HealthResponse) {
	i.change(func() {
		i.state, i.current, i.image = Starting, p, img
		i.features, i.needs = p.description.GetFeatures(), p.description.GetNeeds()
		i.health, i.hung, i.fault, i.ready, i.retryAt = health, "", nil, true, time.Time{}
	})
	i.catalog.running.Add(3)
	go i.watchHealth(p)
	go i.watchLife(p)
	go i.watchStill(p)
}

func (i *instance) process() *process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

func (i *instance) currentSpec() config.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.spec
}

func (i *instance) heldImage() *image {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.image
}

func (i *instance) takeImage() *image {
	i.mu.Lock()
	defer i.mu.Unlock()
	img := i.image
	i.image = nil
	return img
}

func (i *instance) wasReady() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ready
}

// report takes a health message of a process; one of an old process, or one
// that says nothing new, is ignored.
func (i *instance) report(p *process, h *pluginv1.HealthResponse) {
	i.mu.Lock()
	stale := i.current != p || (i.health != nil && proto.Equal(i.health, h))
	i.mu.Unlock()
	if stale {
		return
	}
	i.change(func() {
		if i.current == p {
			i.health, i.requeues = h, 0
		}
	})
}

// missed marks the instance as hung: a call has passed its deadline, or there
// was no sign of life.
func (i *instance) missed(p *process, reason string) {
	i.mu.Lock()
	known := i.current != p || i.hung != ""
	if i.current == p {
		i.hungAt = time.Now()
	}
	i.mu.Unlock()
	if !known {
		i.change(func() {
			if i.current == p && i.hung == "" {
				i.hung = reason
			}
		})
	}
	select {
	case i.kick <- struct{}{}:
	default:
	}
}

// answered takes the mark away once the hold time is over. What was asked before
// the mark was made says nothing: on a busy machine its answer may be read late.
func (i *instance) answered(p *process, asked time.Time) {
	i.mu.Lock()
	over := i.current == p && i.hung != "" && asked.After(i.hungAt) && time.Since(i.hungAt) >= i.catalog.deadlines.Hold
	i.mu.Unlock()
	if over {
		i.change(func() {
			if i.current == p {
				i.hung = ""
			}
		})
	}
}
