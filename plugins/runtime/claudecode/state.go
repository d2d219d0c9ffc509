package main

import (
	"encoding/json"
	"errors"
	"fmt"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// stateVersion is the version of a checkpoint's state.
const stateVersion = 1

// How the next session of a mission goes on.
const (
	afterDeferred = "deferred" // the CLI asks again for the call that it let go
	afterCrash    = "crash"    // it is told to go on
	afterLost     = "lost"     // its session is not there any more: it begins anew
)

// state is all that a checkpoint carries. It describes the session up to the
// output offset At; of what is before At only the requests in Open are read
// again, for their contents.
type state struct {
	V          int    `json:"v"`
	Session    string `json:"session"`
	Generation uint64 `json:"generation"`
	After      string `json:"after,omitempty"` // set when a session has ended with its work undone

	At    uint64           `json:"at"`
	Open  []string         `json:"open,omitempty"` // requests of the CLI without an answer
	Ready bool             `json:"ready,omitempty"`
	Calls map[string]*call `json:"calls,omitempty"` // by tool_use_id
	Done  []string         `json:"done,omitempty"`  // settled, their result not printed yet
	// Agents are the sub-agents, by agent_id: the call that each is part of.
	Agents map[string]string `json:"agents,omitempty"`

	Let      string    `json:"let,omitempty"`      // the call that this session has let go
	Deferred []string  `json:"deferred,omitempty"` // let go, and not asked again yet
	Unknown  []unknown `json:"unknown,omitempty"`  // admitted in an earlier session, end not known

	Notice string `json:"notice,omitempty"` // of the host, for the prompt that is next

	Iteration int64             `json:"iteration,omitempty"`
	Turns     map[string]string `json:"turns,omitempty"` // last message id, by the sub-agent's call
	Tokens    int64             `json:"tokens,omitempty"`
	Counted   int64             `json:"counted,omitempty"` // tokens that a result has stated
	CostMicro int64             `json:"cost_micro,omitempty"`

	Result      *ending `json:"result,omitempty"`
	Fatal       string  `json:"fatal,omitempty"`
	Interrupted bool    `json:"interrupted,omitempty"`
	Stopped     bool    `json:"stopped,omitempty"` // and the host was told that it stopped
	Closed      bool    `json:"closed,omitempty"`  // its input was closed
	Started     bool    `json:"started,omitempty"`
}

// unknown is a call of which nobody knows whether it took effect.
type unknown struct {
	ID   string `json:"id"`
	Tool string `json:"tool"`
	What string `json:"what,omitempty"`
}

// maxUnknown bounds what is kept of unknown calls.
const maxUnknown = 50

// readState reads a checkpoint's state; nil = there is none.
func readState(b []byte) (*state, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("the stored state is not one of this plugin: %w", err)
	}
	switch {
	case s.V == 0:
		return nil, errors.New("the stored state is not one of this plugin")
	case s.V != stateVersion:
		return nil, fmt.Errorf("the stored state has version %d; this plugin reads version %d", s.V, stateVersion)
	}
	return &s, nil
}

// next is the state at the begin of a later session of the mission. open are
// the calls whose end the host does not know.
func (s *state) next(open []*pluginv1.OpenCall) *state {
	n := &state{V: stateVersion, Session: s.Session, After: s.After,
		Unknown: s.Unknown, Deferred: s.Deferred, Notice: s.Notice,
		Iteration: s.Iteration, Tokens: s.Tokens, Counted: s.Counted, CostMicro: s.CostMicro}
	for id, c := range s.Calls { // a session that ended without our seeing it
		n.unknown(id, c)
	}
	for _, o := range open {
		n.unknown(o.GetProposalId(), &call{Tool: o.GetTool(), Invocation: o.GetInvocationId()})
	}
	if n.After == "" {
		n.After = afterCrash
	}
	if n.After == afterLost {
		n.Deferred = nil
	}
	return n
}

// unknown takes a call up whose end nobody knows.
func (s *state) unknown(id string, c *call) {
	if c.Invocation == "" || s.isUnknown(id) {
		return
	}
	s.Unknown = append(s.Unknown, unknown{ID: id, Tool: c.Tool, What: c.What})
	if n := len(s.Unknown); n > maxUnknown {
		s.Unknown = s.Unknown[n-maxUnknown:]
	}
}

func (s *state) letGo() bool { return s.Let != "" }

func (s *state) isUnknown(id string) bool {
	for _, u := range s.Unknown {
		if u.ID == id {
			return true
		}
	}
	return false
}
