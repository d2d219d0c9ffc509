package executor

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options configure an Executor.
type Options struct {
	Endpoint string // base URL of `aiwg serve`; empty: not configured
	Name     string // as registered; see RegisteredName
	Version  string // of the host, 1 to 64 characters
	ID       string // executor id; see LoadIdentity
	REST     string // advertised base URLs; see Endpoints
	WS       string
	Actor    string // who inbound commands are journalled as; empty: "orchestrator"
	Sandbox  bool   // keep the older sandbox registration beside it
	// Token is that of a registration that an earlier process of this host has
	// handed over: dispatches that come with it are taken at once. Empty: none.
	Token string

	Engine  Engine
	Outbox  Outbox
	Logger  hclog.Logger     // nil: none
	Now     func() time.Time // nil: time.Now
	Timings Timings
}

// Timings are the contract's times (section 0). A zero field means its default.
type Timings struct {
	BackoffMin    time.Duration // 1 s
	BackoffMax    time.Duration // 30 s
	StableAfter   time.Duration // 60 s: a connection that lived this long resets the backoff
	PingEvery     time.Duration // 20 s
	PongWait      time.Duration // 10 s
	WriteWait     time.Duration // 10 s: a socket that takes no data this long is given up
	CloseWait     time.Duration // 2 s for the other side of a close handshake
	RequestWait   time.Duration // 10 s for one HTTP request
	ReadBackWait  time.Duration // 2 s for one read-back
	CheckEvery    time.Duration // 30 s between looks at our own registration
	GateWait      time.Duration // 5 s until a first event is sent without a read-back
	SlowPollMax   time.Duration // 5 min between read-backs of a mission that serve forgot
	RestateFor    time.Duration // 5 s of watching after a repeated dispatch
	KeepForgotten time.Duration // 24 h until events of a forgotten mission are undeliverable
	Debounce      time.Duration // 1 s from a change of capabilities to the new registration
	QuestionPoll  time.Duration // 2 s between looks at open questions, for the sandbox link
}

func or(d *time.Duration, standard time.Duration) {
	if *d == 0 {
		*d = standard
	}
}

func (t *Timings) defaults() {
	or(&t.BackoffMin, time.Second)
	or(&t.BackoffMax, 30*time.Second)
	or(&t.StableAfter, 60*time.Second)
	or(&t.PingEvery, 20*time.Second)
	or(&t.PongWait, 10*time.Second)
	or(&t.WriteWait, 10*time.Second)
	or(&t.CloseWait, 2*time.Second)
	or(&t.RequestWait, 10*time.Second)
	or(&t.ReadBackWait, 2*time.Second)
	or(&t.CheckEvery, 30*time.Second)
	or(&t.GateWait, 5*time.Second)
	or(&t.SlowPollMax, 5*time.Minute)
	or(&t.RestateFor, 5*time.Second)
	or(&t.KeepForgotten, 24*time.Hour)
	or(&t.Debounce, time.Second)
	or(&t.QuestionPoll, 2*time.Second)
}

func (o *Options) defaults() {
	if o.Actor == "" {
		o.Actor = "orchestrator"
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Timings.defaults()
}
