package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// Revoker is an issuer and its revoker in one: it hands out credentials from
// memory.
type Revoker struct {
	base
	revoker.Unimplemented

	mu    sync.Mutex
	valid map[string]bool // by grant id; false: revoked, and never valid again
}

// NewRevoker is a revoker without grants and without faults.
func NewRevoker() *Revoker {
	return &Revoker{
		base:  newBase("revoker", "A revoker for tests: the issuer is a map.", nil, []string{revoker.FeatureGrants}),
		valid: make(map[string]bool),
	}
}

// Grant makes a credential out of the grant's id.
func (r *Revoker) Grant(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	if err := r.Hit(ctx, "Grant"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if valid, known := r.valid[req.GetGrantId()]; known && !valid {
		return nil, plugin.FailedPrecondition("grant %q was revoked", req.GetGrantId())
	}
	r.valid[req.GetGrantId()] = true
	return &pluginv1.GrantResponse{Grant: &pluginv1.Grant{
		GrantId: req.GetGrantId(), Env: map[string]string{"FAKE_TOKEN": "fake-" + req.GetGrantId()},
	}}, nil
}

// Revoke voids the grants.
func (r *Revoker) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	if err := r.Hit(ctx, "Revoke"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.GetDryRun() {
		return &pluginv1.RevokeResponse{
			Result: pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED,
			Detail: fmt.Sprintf("would void %d grants", len(req.GetGrants())),
		}, nil
	}
	for _, id := range req.GetGrants() {
		r.valid[id] = false
	}
	digest := sha256.Sum256([]byte(req.GetStopId()))
	return &pluginv1.RevokeResponse{
		Result: pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED, EvidenceDigest: digest[:],
		Detail: fmt.Sprintf("voided %d grants", len(req.GetGrants())),
	}, nil
}

// Verify looks the grants up.
func (r *Revoker) Verify(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	if err := r.Hit(ctx, "Verify"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range req.GetGrants() {
		if r.valid[id] {
			return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED, Detail: id}, nil
		}
	}
	return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER}, nil
}
