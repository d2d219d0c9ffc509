package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/result"
	"github.com/airlock-host/airlock/host/internal/session"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Engine is what the API needs of the engine.
type Engine interface {
	Tasks
	Accept(ctx context.Context, d engine.Dispatch) (engine.Accepted, error)
	// Plan says what Accept would do, and changes nothing.
	Plan(ctx context.Context, d engine.Dispatch) (engine.Plan, error)
	Pause(ctx context.Context, missionID, actor, reason string) error
	Resume(ctx context.Context, missionID, actor, reason string) error
	Restart(ctx context.Context, missionID, actor string) error
	// Stopping is the stop whose latch is set and since when; it never waits.
	Stopping(missionID string) (mission.Stop, time.Time, bool)
	// Climbing are the rungs that a stop under way has come to; it never waits.
	Climbing(missionID, stopID string) []engine.Rung
	// QuarantineReceipt is the stop receipt of a task that was ended in quarantine,
	// which its journal does not have; nil when there is none.
	QuarantineReceipt(taskID string) map[string]any
	// AskIssuers has the issuers that have not acknowledged asked at once, and
	// returns after their next answers or with ctx.
	AskIssuers(ctx context.Context, taskID string)
	Abort(ctx context.Context, missionID, actor, by, reason string) error
	// AbortForGood is Abort after which a harness task cannot be restarted.
	AbortForGood(ctx context.Context, missionID, actor, by, reason string) error
	Answer(ctx context.Context, hitlID, actor, text string) error
	Mission(ctx context.Context, id string) (mission.View, error)
	Missions(ctx context.Context, f store.MissionFilter) (views []mission.View, next string, err error)
	// Files is what an ended mission changed; result.ErrNone when nothing is kept.
	Files(ctx context.Context, missionID string) (*result.Stored, error)
	Questions() []mission.Question
	Agents() []engine.AgentView
	// Peek shows a live mission as it was last published and never waits, not
	// for a store that hangs either.
	Peek(id string) (mission.View, bool)
}

// Tasks is the governed side of the engine (seed 003): what harnesses and
// operators do with a task's tool calls. A refusal is *governance.Refused.
type Tasks interface {
	CreateTask(ctx context.Context, t engine.NewTask, actor string) (taskID, token string, err error)
	// TaskToken says whether a token is the task's, and what it is good for.
	TaskToken(ctx context.Context, taskID, token string) (scopes []string, ok bool)
	TaskStatus(ctx context.Context, taskID string) (governance.Status, error)

	// Propose gives the decision; with a wait the one that resolved it.
	Propose(ctx context.Context, taskID string, p engine.Proposal, wait time.Duration) (engine.Judged, error)
	Decision(ctx context.Context, taskID, decisionID string) (engine.Judged, error)
	Dispatch(ctx context.Context, taskID, decisionID, tool string, args json.RawMessage) (invocationID string, err error)
	Complete(ctx context.Context, taskID string, s governance.Settled) error
	Invocation(ctx context.Context, taskID, invocationID string, wait time.Duration) (engine.InvocationState, error)
	RecordAccess(ctx context.Context, taskID string, a governance.Access) error

	Approve(ctx context.Context, taskID string, a engine.Approval) (engine.Reply, error)
	Resolve(ctx context.Context, taskID, invocationID, outcome, explanation, actor string) error
	// Waive does without an issuer's acknowledgement.
	Waive(ctx context.Context, taskID, issuer, explanation, actor string) error
	// NewToken gives a harness task another token.
	NewToken(ctx context.Context, taskID string, scopes []string, actor string) (string, error)
	SetIntent(ctx context.Context, taskID string, e *governance.Envelope, actor string) error
	SetPlan(ctx context.Context, taskID string, plan json.RawMessage, actor string) error
	PauseGate(ctx context.Context, taskID, actor, reason string) error
	Replan(ctx context.Context, taskID, actor, reason string) error
}

// Sessions finds sessions, running or ended. engine.ErrNotFound when there is
// none.
type Sessions interface {
	Session(ctx context.Context, sessionID string) (*session.Session, error)
}

// Events reads the journals of all tasks.
type Events interface {
	// Events reads a task's events with a sequence above after, in order.
	Events(ctx context.Context, task string, after uint64, limit int) ([]journal.Event, error)
	// Show is Events for readers: an event that is damaged or not there is marked,
	// and those behind it come too.
	Show(ctx context.Context, task string, after uint64, limit int) ([]journal.Shown, error)
	// Head is the end of a task's chain.
	Head(ctx context.Context, task string) (journal.Head, error)
	// Feed reads the events of all tasks in the order of their commits, behind
	// a cursor; cursors[i] is the place of events[i].
	Feed(ctx context.Context, after int64, limit int) (events []journal.Event, cursors []int64, err error)
	// FeedEnd is the cursor of the newest event.
	FeedEnd(ctx context.Context) (int64, error)
	// Check verifies a task's whole chain: where it is good to, the trusted head
	// if there is one, and as error what is wrong, a *journal.ChainError where it is
	// the chain.
	Check(ctx context.Context, task string) (good journal.Head, trusted *journal.Head, err error)
	// Changed is closed at the next commit of any event, EventsChanged at the
	// next one of the task. Ask before reading, so that nothing is missed.
	Changed() <-chan struct{}
	EventsChanged(task string) <-chan struct{}
}

// Plugins is what the API needs of the plugin catalog.
type Plugins interface {
	// Status is one JSON-ready object per plugin instance.
	Status() any
	// Reload relaunches an instance; engine.ErrNotFound when there is none of
	// that name.
	Reload(ctx context.Context, name string) error
}

// Readiness says whether the host can take missions.
type Readiness struct {
	Ready bool `json:"ready"`
	// Store is empty while commits are possible, else why not.
	Store string `json:"store"`
	// RunDir is empty while the run directory is as the host made it, else what
	// is the matter: then nobody new reaches the host, and no cell can be made.
	RunDir string `json:"run_dir,omitempty"`
	// Trouble is what an operator must know since the start, each with what it
	// means and what to do. It does not make the host unready.
	Trouble []string `json:"trouble,omitempty"`
	// Prices are the models whose calls were not counted at a price of their
	// own, each with what was done instead.
	Prices []string `json:"prices,omitempty"`
	// Heads is why trusted heads cannot be written now; empty: they can. It does
	// not make the host unready.
	Heads string `json:"heads,omitempty"`
	// Plugins are the instances by ref, with why they cannot be used; an
	// empty reason means healthy. They do not make the host unready.
	Plugins map[string]string `json:"plugins"`
}

// Options of a Server. Engine, Sessions, Events, Plugins, Ready, Operators and
// Log are required.
type Options struct {
	Version  string
	Engine   Engine
	Sessions Sessions
	Events   Events
	Plugins  Plugins
	Ready    func() Readiness

	Operators *Operators
	Log       hclog.Logger
	// Sign signs a head that was verified, for evidence bundles; nil: there are
	// none.
	Sign func(journal.NewHead) (record.Record, record.Key)

	// Hosts are names and addresses beside the loopback ones under which the
	// listeners may be reached (listen.advertise, the listeners' own).
	Hosts []string
	// RESTPort is where the Control Room is served; its pages may open the
	// WebSockets.
	RESTPort string

	// Dispatch takes dispatches of the orchestrator and checks the executor
	// token itself. Where the path has an id, r.PathValue("id") is it, decoded.
	Dispatch http.Handler
	// OrchestratorStatus answers GET /api/v1/aiwg/status.
	OrchestratorStatus http.Handler
	// Reconnect skips the wait before the next attempt to reach the
	// orchestrator.
	Reconnect http.Handler
	// MCP takes POST /mcp and checks the task token itself; nil: not there.
	MCP http.Handler
	// UI serves / and /ui/; nil: not there.
	UI http.Handler
	// Docs serves /docs; nil: not there.
	Docs http.Handler
	// RESTBase is the REST listener's URL as people reach it; empty: made of
	// RESTPort.
	RESTBase string

	// Metrics are what /metrics shows; nil: not there. Register takes the API's
	// own; nil: not counted.
	Metrics     prometheus.Gatherer
	Register    prometheus.Registerer
	MetricsOpen bool

	// OpenAnswers is the actor of answers that come without a credential, as the
	// orchestrator's older sandbox link sends them (orchestrator {
	// sandbox_hitl = true }). They count for questions of its own missions, never
	// for approvals. Empty: refused.
	OpenAnswers string

	// Drain stops taking missions and waits for those that run, at most until
	// the deadline (0: no wait). Reload reads the configuration again and
	// answers what could be applied. nil: this host cannot.
	Drain  func(ctx context.Context, deadline time.Duration) error
	Reload func(ctx context.Context) (any, error)
	// Config answers what the host runs with, without secrets; nil: not there.
	Config func() any

	// WriteTimeout is how long one write to a stream may take before the
	// reader is given up; 0 = 10 s. BodyTimeout bounds the reading of a body;
	// 0 = 30 s.
	WriteTimeout time.Duration
	BodyTimeout  time.Duration
	Now          func() time.Time // nil: time.Now
}
