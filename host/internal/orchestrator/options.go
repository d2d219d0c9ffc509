package orchestrator

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options choose which `aiwg serve` is spoken.
type Options struct {
	// Generation 1 (the default) forwards a dispatch to {rest}/dispatch;
	// 2 first tries POST {rest}/agents/{id}/v1/messages:send and falls back on
	// exactly 404.
	Generation int
	// Built is serve run from its built package: it validates nothing.
	// Violations are recorded all the same.
	Built bool
	// AllowAgentID accepts executor_filter.agent_id, which serve run from
	// source refuses and the seed knows.
	AllowAgentID bool
	// OldSocketClobbers is serve's fault with overlapping sockets: the close of
	// a replaced socket marks the executor as not connected.
	OldSocketClobbers bool
	// OperatorToken, if set, is asked for (Authorization: Bearer) on every
	// route by which an operator acts. Serve has no such check.
	OperatorToken string
	// Path, if set ("/…"), is put before every route, and is part of URL: who does
	// not know it reaches none. Serve has no such thing, nor any other credential
	// at registration and dispatch.
	Path string
	// KeepEvents is how many events of one mission are kept; 0: 1000.
	KeepEvents int
	// MaxMissions is how many missions are kept; beyond it the oldest ended
	// ones are forgotten. 0: 10000.
	MaxMissions int
	// Logger; nil: none.
	Logger hclog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Hooks make faults.
	Hooks Hooks
}

// Hooks make faults. Each may be nil, may block, and is called without a lock
// held.
type Hooks struct {
	// Intercept sees every request first; true says that it has been answered.
	Intercept func(w http.ResponseWriter, r *http.Request) bool
	// BeforeAssign runs between the executor's answer to a forwarded dispatch
	// and the recording of the mission: the race of the contract's section 1.7.
	BeforeAssign func(missionID string)
	// BeforeEvent runs before an event is handled, in the order of its socket.
	BeforeEvent func(Event)
	// Drop says that an event is lost.
	Drop func(Event) bool
}

func (o *Options) defaults() {
	if o.Generation == 0 {
		o.Generation = 1
	}
	if o.KeepEvents == 0 {
		o.KeepEvents = 1000
	}
	if o.MaxMissions == 0 {
		o.MaxMissions = 10000
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}
