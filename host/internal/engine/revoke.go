package engine

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	revokeTimeout = 15 * time.Second // one call of an issuer
	revokeFirst   = 2 * time.Second  // how long a stop waits for issuers before its receipt says so
	revokeAgain   = time.Second      // first pause before another attempt
	revokeSlow    = 5 * time.Minute  // the longest pause, and the one where trying again cannot help by itself
)

// gatewayIssuer is the issuer of what the host's own gateway gave (rulings 23).
const gatewayIssuer = "gateway"

// acknowledged is the only result that counts as revoked (V3).
const acknowledged = governance.Acknowledged

// issuers are the revokers that a task's access must be taken back from: the
// agent block's, and every one there is for a task without an agent block,
// which may have been given access by any of them.
func (e *Engine) issuers(a *actor, m *mission.Mission) []string {
	var refs []string
	if m.Harness {
		for _, i := range e.conf.Load().Instances {
			if i.Kind == "revoker" {
				refs = append(refs, i.Ref())
			}
		}
	} else if sp, err := frozen(m.Spec); err == nil {
		refs = append(refs, sp.Revokers...)
		if len(sp.Gateways) > 0 {
			refs = append(refs, gatewayIssuer)
		}
	}
	for _, g := range m.Task.Grants {
		if !g.Over() && !slices.Contains(refs, g.Issuer) {
			refs = append(refs, g.Issuer)
		}
	}
	for _, acc := range m.Task.Access {
		if ref := issuerRef(refs, acc.Issuer); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// issuerRef finds the revoker that a harness names by its ref, its plugin or its
// instance; the name itself when there is none, so that it counts as a failure.
func issuerRef(refs []string, name string) string {
	for _, ref := range refs {
		if governance.SameIssuer(ref, name) {
			return ref
		}
	}
	return name
}

// owed says that an issuer gave something that is not taken back yet.
func owed(t *governance.Task, ref string) bool {
	for _, g := range t.Grants {
		if g.Issuer == ref && !g.Over() {
			return true
		}
	}
	for _, acc := range t.Access {
		if issuerRef([]string{ref}, acc.Issuer) == ref {
			return true
		}
	}
	return false
}

// revoke takes the task's access back from every issuer side by side, journals
// each answer, and goes on trying where that can help. It returns once every
// issuer has answered once, or after the wait.
func (e *Engine) revoke(ctx context.Context, a *actor, stopID, reason string, wait time.Duration) {
	m := a.settled()
	var due []string
	var first sync.WaitGroup
	for _, ref := range e.issuers(a, &m) {
		r := m.Task.Revocation
		if r != nil && (r.Issuers[ref].Result == acknowledged || r.Issuers[ref].Result == governance.Waived) && !owed(&m.Task, ref) {
			continue
		}
		if asked, ok := a.asking.Load(ref); ok { // it is tried again at once
			first.Add(1)
			asked.(*asker).again(sync.OnceFunc(first.Done))
			continue
		}
		due = append(due, ref)
	}
	if len(due) > 0 {
		e.startRevoking(a, due, stopID, reason, &first)
	}
	all := make(chan struct{})
	go func() { first.Wait(); close(all) }()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-all:
	case <-t.C:
	case <-ctx.Done():
	}
}

// asker asks one issuer until it acknowledges.
type asker struct {
	mu   sync.Mutex
	told []func()      // called after the next answer
	poke chan struct{} // cap 1: do not wait for the next attempt
}

// again asks for an attempt at once; told is called after its answer.
func (k *asker) again(told func()) {
	k.mu.Lock()
	k.told = append(k.told, told)
	k.mu.Unlock()
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// tell says that there is an answer.
func (k *asker) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.told {
		f()
	}
	k.told = nil
}

// AskIssuers has the issuers of a task that have not acknowledged asked at once
// and not after their pause. It returns after their next answers, or with ctx.
func (e *Engine) AskIssuers(ctx context.Context, taskID string) {
	a := e.actor(taskID)
	if a == nil {
		return
	}
	var answers sync.WaitGroup
	a.asking.Range(func(_, k any) bool {
		answers.Add(1)
		k.(*asker).again(sync.OnceFunc(answers.Done))
		return true
	})
	all := make(chan struct{})
	go func() { answers.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
	}
}

// startRevoking begins to ask issuers that nobody asks yet.
func (e *Engine) startRevoking(a *actor, due []string, stopID, reason string, first *sync.WaitGroup) {
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		if r := m.Task.Revocation; r != nil && r.StopID == stopID && r.State == "in_flight" {
			return nil, nil // said together with the end
		}
		return []mission.Fact{governance.RevocationStarted{V: 1, StopID: stopID, Issuers: due, Reason: reason}}, nil
	}, nil)
	if err != nil { // a broken sink does not keep access from being cut (F7)
		a.audit(fmt.Sprintf("the start of the revocation could not be journalled: %v", err))
	}
	for _, ref := range due {
		first.Add(1)
		k := &asker{poke: make(chan struct{}, 1), told: []func(){sync.OnceFunc(first.Done)}}
		a.asking.Store(ref, k)
		a.revoking.Add(1)
		e.goRun(func(ctx context.Context) {
			defer a.revoking.Done()
			defer k.tell()
			defer a.asking.Delete(ref)
			e.revokeFrom(ctx, a, ref, stopID, reason, k)
		})
	}
}

// revokeFrom asks one issuer until it acknowledges.
func (e *Engine) revokeFrom(ctx context.Context, a *actor, ref, stopID, reason string, k *asker) {
	m := a.settled()
	attempt := 0
	if r := m.Task.Revocation; r != nil {
		attempt = r.Issuers[ref].Attempts
	}
	for pause := revokeAgain; ; pause = min(2*pause, revokeSlow) {
		attempt++
		f := e.askIssuer(ctx, a, ref, stopID, reason)
		if ctx.Err() != nil {
			return // the host goes away: it is taken up at the next start
		}
		f.V, f.StopID, f.Issuer, f.Attempt = 1, stopID, ref, attempt
		say := func(*mission.Mission) ([]mission.Fact, error) { return []mission.Fact{f}, nil }
		if f.Result != acknowledged && a.waived(ref) {
			return
		}
		if err := a.commit(say, nil); err != nil {
			a.audit(fmt.Sprintf("the answer of issuer %s (%s) could not be journalled: %v", ref, f.Result, err))
			a.unwritten.Store(ref, f)
			if k.tell(); f.Result == acknowledged {
				_ = a.insist(say, nil)
			}
		} else {
			a.unwritten.Delete(ref) // the journal knows better now
		}
		if k.tell(); f.Result == acknowledged {
			return
		}
		a.log().Error("access is not revoked", "issuer", ref, "attempt", attempt, "retryable", f.Retryable, "detail", f.Detail)
		if !f.Retryable {
			pause = revokeSlow // an operator must do something; look again now and then
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-k.poke:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil || a.waived(ref) {
			return
		}
	}
}

// failed is an attempt that was none.
func failed(retryable bool, format string, args ...any) governance.RevocationResult {
	return governance.RevocationResult{Result: "failed", Retryable: retryable, Detail: fmt.Sprintf(format, args...)}
}

// askIssuer is one attempt. Anything but a plain acknowledgement is a failure of
// that issuer (V3), and so is a credential that the issuer still takes.
func (e *Engine) askIssuer(ctx context.Context, a *actor, ref, stopID, reason string) governance.RevocationResult {
	if ref == gatewayIssuer {
		if e.opts.Dialer == nil {
			return failed(false, "the host has no gateway")
		}
		return governance.RevocationResult{Result: acknowledged, Detail: fmt.Sprintf("cut off; %d open streams ended", e.opts.Dialer.Cut(a.id))}
	}
	if !slices.ContainsFunc(e.conf.Load().Instances, func(i config.Instance) bool { return i.Ref() == ref }) {
		return failed(false, "no revoker of this name is configured: what the issuer gave cannot be taken back by this host")
	}
	client, err := e.opts.Plugins.Revoker(ref)
	if err != nil {
		return failed(true, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	return askRevoker(ctx, client, e.revokeRequest(a, ref, stopID, reason))
}

// askRevoker asks an issuer's plugin once, and whether the issuer still takes
// what it has acknowledged to have taken back.
func askRevoker(ctx context.Context, client pluginv1.RevokerClient, req *pluginv1.RevokeRequest) governance.RevocationResult {
	resp, err := client.Revoke(ctx, req)
	switch {
	case err != nil:
		return failed(true, "%v", err)
	case resp.GetResult() != pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED:
		return failed(resp.GetRetryable(), "%s: %s", resp.GetResult(), resp.GetDetail())
	}
	out := governance.RevocationResult{Result: acknowledged, Detail: resp.GetDetail(), Evidence: hex.EncodeToString(resp.GetEvidenceDigest())}
	if len(req.GetGrants()) == 0 {
		return out
	}
	v, err := client.Verify(ctx, &pluginv1.VerifyRequest{Task: req.GetTask(), Grants: req.GetGrants()})
	if err == nil && v.GetResult() == pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED {
		return failed(true, "the issuer acknowledged, but still accepts the credential: %s", v.GetDetail())
	}
	return out
}

// revokeRequest lists what one issuer has to take back.
func (e *Engine) revokeRequest(a *actor, ref, stopID, reason string) *pluginv1.RevokeRequest {
	m := a.settled()
	req := &pluginv1.RevokeRequest{Task: e.taskRef(a), StopId: stopID, Reason: reason}
	for _, g := range m.Task.Grants {
		if g.Issuer == ref {
			req.Grants = append(req.Grants, g.ID)
		}
	}
	for _, acc := range m.Task.Access {
		switch {
		case issuerRef([]string{ref}, acc.Issuer) != ref:
		case acc.Kind == "session":
			req.Sessions = append(req.Sessions, acc.Ref)
		default:
			req.Delegations = append(req.Delegations, acc.Ref)
		}
	}
	return req
}

func (e *Engine) taskRef(a *actor) *pluginv1.TaskRef {
	return &pluginv1.TaskRef{TaskId: a.id, HostId: e.opts.HostID}
}

// access is the receipt's word for how far access is cut (V4).
func (e *Engine) access(a *actor, m *mission.Mission) (string, map[string]issuerResult) {
	issuers := map[string]issuerResult{}
	for _, ref := range e.issuers(a, m) {
		issuers[ref] = issuerResult{Result: "in_flight", At: e.now().UTC()}
	}
	if r := m.Task.Revocation; r != nil {
		for ref, res := range r.Issuers {
			issuers[ref] = issuerResult{Result: res.Result, Detail: res.Detail, Evidence: res.Evidence, Attempts: res.Attempts, At: res.At}
		}
	}
	a.unwritten.Range(func(ref, v any) bool {
		f := v.(governance.RevocationResult)
		issuers[ref.(string)] = issuerResult{Result: f.Result, Detail: f.Detail, Evidence: f.Evidence, Attempts: f.Attempt, At: e.now().UTC()}
		return true
	})
	if len(issuers) == 0 {
		return "not_configured", issuers
	}
	for _, res := range issuers {
		if res.Result != acknowledged {
			return "partial_failure", issuers
		}
	}
	return acknowledged, issuers
}

// settleAccess takes access back when a mission has ended without a stop, or
// goes on with it after a restart. It returns when nothing is owed any more, or
// when the host goes away.
func (e *Engine) settleAccess(ctx context.Context, a *actor) {
	a.revoking.Wait() // what a stop has begun
	m := a.settled()
	if ctx.Err() != nil || !m.Owes() {
		return
	}
	e.revoke(ctx, a, endID(&m), "the mission has ended ("+string(m.State)+")", revokeFirst)
	a.revoking.Wait()
}

// endID is the idempotency key of the revocation at a mission's end.
func endID(m *mission.Mission) string {
	if r := m.Task.Revocation; r != nil {
		return r.StopID
	}
	if m.Stop != nil {
		return m.Stop.ID
	}
	return "end-" + m.JournalUUID
}

// withRevocation says together with a mission's end that its access is being
// taken back, so that a crash in between loses nothing.
func (e *Engine) withRevocation(a *actor, facts []mission.Fact) []mission.Fact {
	i := slices.IndexFunc(facts, func(f mission.Fact) bool { _, ends := f.(mission.Ended); return ends })
	if i < 0 || a.m.Task.Revocation != nil {
		return facts
	}
	issuers := e.issuers(a, &a.m)
	if len(issuers) == 0 {
		return facts
	}
	return slices.Insert(slices.Clone(facts), i, mission.Fact(governance.RevocationStarted{V: 1, StopID: endID(&a.m), Issuers: issuers, Reason: "the mission has ended"}))
}
