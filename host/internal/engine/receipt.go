package engine

import (
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// receipt is the stop receipt (governance 3G): what was running, which rung did
// what and when, what proves that nothing is left, and what issuers said. What
// could not be proven says so.
type receipt struct {
	TaskID       string                  `json:"task_id"`
	StopID       string                  `json:"stop_id"`
	Epoch        uint64                  `json:"epoch"`
	Actor        string                  `json:"actor"`
	Reason       string                  `json:"reason"`
	EffectiveAt  time.Time               `json:"effective_at"` // when the latch held
	Running      []string                `json:"running"`      // calls that were admitted before and not over
	Cancellation []cancellation          `json:"cancellation_requests"`
	Issuers      map[string]issuerResult `json:"issuers"`
	Access       string                  `json:"access_revocation"` // acknowledged | partial_failure | not_configured
	Isolation    isolationProof          `json:"isolation"`
	Rungs        []Rung                  `json:"rungs"`
	AuditError   *string                 `json:"audit_error"`
}

// cancellation is a request to a call that ran; never a proof that it ended.
type cancellation struct {
	InvocationID string    `json:"invocation_id"`
	RequestedAt  time.Time `json:"requested_at"`
	Accepted     bool      `json:"accepted"`
}

// issuerResult is what a receipt says of one issuer.
type issuerResult struct {
	Result   string    `json:"result"` // acknowledged | failed | in_flight | waived
	Detail   string    `json:"detail"`
	Evidence string    `json:"evidence,omitempty"`
	Attempts int       `json:"attempts"`
	At       time.Time `json:"at"`
}

type isolationProof struct {
	Driver string    `json:"driver"`
	Action string    `json:"action"`
	Result string    `json:"result"`
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
}

// Rung is one step of the ladder.
type Rung struct {
	Name   string    `json:"name"` // latch | tombstone | cell_latch | cut | interrupt | freeze | kill | revoke
	Result string    `json:"result"`
	At     time.Time `json:"at"`
	TookMS float64   `json:"took_ms"`
}

// ladderLog collects the rungs.
type ladderLog struct {
	now   func() time.Time
	live  *climbing // shows the rungs while they are climbed; nil: nobody looks
	rungs []Rung
}

// climb runs one rung and notes it.
func (l *ladderLog) climb(name string, do func() string) {
	from := l.now()
	r := Rung{Name: name, Result: rungRunning, At: from.UTC()}
	l.live.note(r)
	r.Result = do()
	r.TookMS = float64(l.now().Sub(from).Microseconds()) / 1000
	l.live.note(r)
	l.rungs = append(l.rungs, r)
}

func word(err error) string {
	if err != nil {
		return "failed: " + err.Error()
	}
	return "done"
}

// newReceipt fills what the task itself knows.
func (e *Engine) newReceipt(a *actor, m *mission.Mission, proof isolationProof, rungs []Rung, effective time.Time) receipt {
	r := receipt{TaskID: a.id, StopID: m.Stop.ID, Epoch: m.Epoch, Actor: m.Stop.Actor, Reason: m.Stop.Reason, EffectiveAt: effective,
		Running: []string{}, Cancellation: []cancellation{}, Isolation: proof, Rungs: rungs}
	for _, i := range m.Task.Running {
		if _, over := a.over(i.ID); over {
			continue
		}
		r.Running = append(r.Running, i.ID)
		if i.CancelAt != nil {
			r.Cancellation = append(r.Cancellation, cancellation{InvocationID: i.ID, RequestedAt: *i.CancelAt, Accepted: true})
		}
	}
	r.Access, r.Issuers = e.access(a, m)
	a.auditMu.Lock()
	if n := len(a.audits); n > 0 {
		last := a.audits[n-1]
		r.AuditError = &last
	}
	a.auditMu.Unlock()
	return r
}

// unproven is the result of a stop whose end nobody can vouch for.
const unproven = "unproven"

func proofWord(p *pluginv1.Proof) string {
	switch p.GetMethod() {
	case pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY:
		return "cgroup_empty"
	case pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE:
		return "pid_namespace_gone"
	case pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED:
		return "engine_exited"
	case pluginv1.ProofMethod_PROOF_METHOD_VM_GONE:
		return "vm_gone"
	case pluginv1.ProofMethod_PROOF_METHOD_SUBREAPER_SWEEP:
		return "subreaper_sweep"
	default:
		return unproven
	}
}
