package conformance_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	sdk "github.com/airlock-host/airlock/sdk/plugin"
)

// hopeful answers every revocation with success without asking anybody.
func hopeful(context.Context, *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	digest := sha256.Sum256([]byte("yes"))
	return &pluginv1.RevokeResponse{Result: acknowledged, Detail: "revoked", EvidenceDigest: digest[:]}, nil
}

// changed alters a good revoker's answers.
func changed(r *modelRevoker, change func(*pluginv1.RevokeRequest, *pluginv1.RevokeResponse)) {
	r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
		answer, err := r.goodRevoke(ctx, req)
		if err == nil {
			change(req, answer)
		}
		return answer, err
	}
}

// mutants are revokers with one mistake each, and the checks that find it.
var mutants = map[string]struct {
	spoil func(*modelRevoker)
	found []string
}{
	"says yes and asks nobody": {func(r *modelRevoker) { r.revoke = hopeful },
		[]string{"revoke-cuts", "revoke-idempotent", "retryable", "permanent", "partial-failure-report", "deadline", "crash-mid-revoke"}},
	"answers without a result": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) { a.Result = 0 })
	}, []string{"revoke-cuts", "revoke-unknown", "revoke-odd-ids"}},
	"answers with an unknown result": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) { a.Result = 99 })
	}, []string{"revoke-cuts", "revoke-idempotent"}},
	"refuses what it does not know": {func(r *modelRevoker) {
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			r.issuer.mu.Lock()
			known := !slices.ContainsFunc(req.GetGrants(), func(id string) bool { return !r.issuer.live(id) })
			r.issuer.mu.Unlock()
			if !known {
				return &pluginv1.RevokeResponse{Result: refused, Detail: "unknown grant"}, nil
			}
			return r.goodRevoke(ctx, req)
		}
	}, []string{"revoke-unknown", "revoke-idempotent", "revoke-many"}},
	"refuses the second time": {func(r *modelRevoker) {
		stops := map[string]bool{}
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			r.issuer.mu.Lock()
			defer r.issuer.mu.Unlock()
			if stops[req.GetStopId()] {
				a.Result, a.Detail = refused, "seen before"
			}
			stops[req.GetStopId()] = true
		})
	}, []string{"revoke-idempotent", "revoke-concurrent"}},
	"cuts in a dry run": {func(r *modelRevoker) {
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			req.DryRun = false
			return r.goodRevoke(ctx, req)
		}
	}, []string{"dry-run"}},
	"is silent in a dry run": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			if req.GetDryRun() {
				a.Detail = ""
			}
		})
	}, []string{"dry-run"}},
	"calls every failure permanent": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) { a.Retryable = false })
	}, []string{"retryable", "deadline"}},
	"calls every failure retryable": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) { a.Retryable = true })
	}, []string{"permanent"}},
	"stops at the first failure": {func(r *modelRevoker) {
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			for _, id := range req.GetGrants() {
				one := &pluginv1.RevokeRequest{Task: req.GetTask(), StopId: req.GetStopId(), Grants: []string{id}, DryRun: req.GetDryRun()}
				if a, err := r.goodRevoke(ctx, one); err != nil || a.GetResult() != acknowledged {
					return a, err
				}
			}
			return r.goodRevoke(ctx, req)
		}
	}, []string{"partial-failure-report"}},
	"acknowledges what went half well": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			if a.GetResult() == refused && len(req.GetGrants()) > 1 {
				a.Result = acknowledged
			}
		})
	}, []string{"partial-failure-report"}},
	"does not say which grant failed": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			if a.GetResult() == refused {
				a.Detail = "something failed"
			}
		})
	}, []string{"partial-failure-report"}},
	"cuts all grants of the host": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			r.issuer.mu.Lock()
			defer r.issuer.mu.Unlock()
			if a.GetResult() == acknowledged && !req.GetDryRun() {
				clear(r.issuer.tokens)
			}
		})
	}, []string{"revoke-only-what-is-named", "grant-odd-ids"}},
	"waits for ever": {func(r *modelRevoker) {
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			r.issuer.mu.Lock()
			stalled := r.issuer.stall != nil
			r.issuer.mu.Unlock()
			if stalled {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return r.goodRevoke(ctx, req)
		}
	}, []string{"deadline"}},
	"keeps a lock after a caller gave up": {func(r *modelRevoker) {
		var mu sync.Mutex
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			if !mu.TryLock() {
				return &pluginv1.RevokeResponse{Result: refused, Retryable: true, Detail: "busy"}, nil
			}
			a, err := r.goodRevoke(ctx, req)
			if ctx.Err() == nil {
				mu.Unlock()
			}
			return a, err
		}
	}, []string{"cancel"}},
	"knows grants only in memory": {func(r *modelRevoker) {
		mine := map[string]bool{}
		r.grant = func(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
			g, err := r.goodGrant(ctx, req)
			r.issuer.mu.Lock()
			defer r.issuer.mu.Unlock()
			mine[req.GetGrantId()] = true
			return g, err
		}
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			r.issuer.mu.Lock()
			req.Grants = slices.DeleteFunc(req.Grants, func(id string) bool { return !mine[id] })
			r.issuer.mu.Unlock()
			return r.goodRevoke(ctx, req)
		}
	}, []string{"revoke-after-restart", "crash-mid-revoke"}},
	"verify always says refused": {func(r *modelRevoker) {
		r.verify = func(context.Context, *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
			return &pluginv1.VerifyResponse{Result: refusedByIssuer}, nil
		}
	}, []string{"verify", "verify-worst-counts", "verify-away", "verify-catches-a-lie", "revoke-after-restart", "dry-run"}},
	"verify always says accepted": {func(r *modelRevoker) {
		r.verify = func(context.Context, *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
			return &pluginv1.VerifyResponse{Result: stillAccepted}, nil
		}
	}, []string{"verify", "verify-unknown"}},
	"verify looks at the first grant only": {func(r *modelRevoker) {
		r.verify = func(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
			req.Grants = req.Grants[:1]
			return r.goodVerify(ctx, req)
		}
	}, []string{"verify-worst-counts"}},
	"verify believes its own books": {func(r *modelRevoker) {
		r.verify = func(_ context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
			r.issuer.mu.Lock()
			defer r.issuer.mu.Unlock()
			for _, id := range req.GetGrants() {
				if !r.issuer.revoked[id] && r.issuer.live(id) {
					return &pluginv1.VerifyResponse{Result: stillAccepted}, nil
				}
			}
			return &pluginv1.VerifyResponse{Result: refusedByIssuer}, nil
		}
	}, []string{"verify-catches-a-lie"}},
	"makes a second credential": {func(r *modelRevoker) {
		r.grant = func(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
			g, err := r.goodGrant(ctx, req)
			if err == nil {
				token := rand.Text() // the issuer keeps the older one too
				r.issuer.mu.Lock()
				defer r.issuer.mu.Unlock()
				r.issuer.tokens[token] = req.GetGrantId()
				g.Grant.Env["TOKEN"] = token
			}
			return g, err
		}
	}, []string{"grant-idempotent"}},
	"gives everybody one credential": {func(r *modelRevoker) {
		r.grant = func(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
			g, err := r.goodGrant(ctx, req)
			if err == nil {
				g.Grant.Env["TOKEN"] = "everybody's"
			}
			return g, err
		}
	}, []string{"grant-ok", "grant-odd-ids"}},
	"cuts a long id": {func(r *modelRevoker) {
		r.grant = func(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
			id := req.GetGrantId()
			req.GrantId = strings.ToLower(id[:min(len(id), 63)])
			g, err := r.goodGrant(ctx, req)
			if err == nil {
				g.Grant.GrantId = id
			}
			return g, err
		}
	}, []string{"grant-odd-ids"}},
	"brings a revoked grant back": {func(r *modelRevoker) {
		r.grant = func(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
			r.issuer.mu.Lock()
			delete(r.issuer.revoked, req.GetGrantId())
			r.issuer.mu.Unlock()
			return r.goodGrant(ctx, req)
		}
	}, []string{"grant-after-revoke"}},
	"tells a credential": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			if len(req.GetGrants()) > 0 {
				a.Detail = "revoked token-of-" + req.GetGrants()[0]
			}
		})
	}, []string{"no-secret-in-logs"}},
	"logs the configured secret in base64": {func(r *modelRevoker) {
		r.log.WriteString("authorization: dGhlLWNvbmZpZ3VyZWQtc2VjcmV0\n")
	}, []string{"no-secret-in-logs"}},
	"has evidence of something else": {func(r *modelRevoker) {
		changed(r, func(_ *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			a.EvidenceDigest = make([]byte, 32)
			a.EvidenceDigest[0] = 1
		})
	}, []string{"evidence-record"}},
	"acknowledges without a word": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, a *pluginv1.RevokeResponse) {
			if !req.GetDryRun() && a.GetResult() == acknowledged {
				a.Detail = ""
			}
		})
	}, []string{"evidence-record"}},
	"panics on an odd id": {func(r *modelRevoker) {
		changed(r, func(req *pluginv1.RevokeRequest, _ *pluginv1.RevokeResponse) {
			if strings.Contains(req.GetTask().GetTaskId(), "..") {
				panic("path")
			}
		})
	}, []string{"revoke-odd-ids"}},
	"is another kind": {func(r *modelRevoker) {
		r.describe = func(d *pluginv1.DescribeResponse) { d.Kind = pluginv1.Kind_KIND_RUNTIME }
	}, []string{"describe"}},
	"says nothing of an attribute": {func(r *modelRevoker) {
		r.describe = func(d *pluginv1.DescribeResponse) { d.Schema.Attributes[0].Description = "" }
	}, []string{"schema-has-descriptions"}},
	"shows a secret": {func(r *modelRevoker) {
		r.describe = func(d *pluginv1.DescribeResponse) { d.Schema.Attributes[0].Sensitive = false }
	}, []string{"schema-secrets-sensitive"}},
	"takes any configuration": {func(r *modelRevoker) { r.configure = func([]byte) error { return nil } },
		[]string{"reconfigure-invalid-keeps-old"}},
	"takes a configuration once": {func(r *modelRevoker) {
		first := true
		r.configure = func([]byte) error {
			if !first {
				return sdk.FailedPrecondition("configured already")
			}
			first = false
			return nil
		}
	}, []string{"reconfigure-live"}},
	"fails with a bare error": {func(r *modelRevoker) {
		r.revoke = func(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
			a, err := r.goodRevoke(ctx, req)
			if err == nil && a.GetResult() == refused {
				return nil, errors.New("oops")
			}
			return a, err
		}
	}, []string{"retryable", "permanent"}},
}

// TestRevokerKitFindsTheMistake: every mutant is found by the checks that are
// there for its mistake.
func TestRevokerKitFindsTheMistake(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := newModelIssuer()
			log := &strings.Builder{}
			make := func() *modelRevoker {
				r := &modelRevoker{issuer: issuer, log: log}
				m.spoil(r)
				return r
			}
			only := m.found
			if slices.Contains(only, "no-secret-in-logs") { // it looks back on the others
				only = nil
			}
			timeout := time.Minute
			if name == "waits for ever" {
				timeout = 2 * time.Second
			}
			got := map[string]conformance.Check{}
			for _, c := range runKit(t, make(), make, timeout, only...) {
				got[c.Name] = c
			}
			for _, check := range m.found {
				switch c, ran := got[check]; {
				case !ran:
					t.Errorf("there is no check %s", check)
				case c.Result != conformance.Fail:
					t.Errorf("%s is %s %s", check, c.Result, c.Detail)
				default:
					t.Logf("%s: %s", check, c.Detail)
				}
			}
		})
	}
}
