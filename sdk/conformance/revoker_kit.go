package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	acknowledged = pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED
	refused      = pluginv1.RevokeResult_REVOKE_RESULT_REFUSED

	refusedByIssuer = pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER
	stillAccepted   = pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED
	cannotTell      = pluginv1.VerifyResult_VERIFY_RESULT_CANNOT_TELL

	featureGrants = "grants"
)

// revokerKit is what the checks of a revoker share.
type revokerKit struct {
	opts RevokerOptions

	mu      sync.Mutex
	client  pluginv1.RevokerClient
	made    []madeGrant // to be revoked after the check
	secrets []string    // of every credential seen
	said    []string    // details and errors that the revoker has given
}

type madeGrant struct {
	task  *pluginv1.TaskRef
	grant *pluginv1.Grant
}

func (k *revokerKit) use(client pluginv1.RevokerClient) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.client = client
}

func (k *revokerKit) revoker() pluginv1.RevokerClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.client
}

func (k *revokerKit) task() *pluginv1.TaskRef {
	return &pluginv1.TaskRef{TaskId: "task-" + newID(), HostId: k.opts.HostID}
}

// hear keeps what the revoker said, for the check that no secret is in it.
func (k *revokerKit) hear(detail string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if detail != "" {
		k.said = append(k.said, detail)
	}
	if err != nil {
		k.said = append(k.said, err.Error())
	}
}

// callGrant asks the plugin for a credential.
func (k *revokerKit) callGrant(ctx context.Context, task *pluginv1.TaskRef, id string) (*pluginv1.Grant, error) {
	// Noted before the call: it may have made something and then failed.
	k.note(task, &pluginv1.Grant{GrantId: id})
	r, err := k.revoker().Grant(ctx, &pluginv1.GrantRequest{Task: task, GrantId: id, RequestJson: k.opts.Request})
	k.hear("", err)
	if err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	g := r.GetGrant()
	k.keepSecrets(g)
	switch {
	case g.GetGrantId() != id:
		return nil, fmt.Errorf("the grant's id is %q, not the %q that was asked for", g.GetGrantId(), id)
	case len(g.GetEnv()) == 0:
		return nil, errors.New("the grant has nothing for the environment")
	case g.GetExpiresAt() != nil && !g.GetExpiresAt().AsTime().After(time.Now()):
		return nil, fmt.Errorf("the grant has ended before it began, at %v", g.GetExpiresAt().AsTime())
	}
	return g, nil
}

// keepSecrets keeps a credential, for the check that nobody has logged it.
func (k *revokerKit) keepSecrets(g *pluginv1.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, v := range g.GetEnv() {
		if !k.public(name) {
			k.secrets = append(k.secrets, v)
		}
	}
}

// public says that a variable holds no secret.
func (k *revokerKit) public(name string) bool {
	if k.opts.Public != nil {
		return slices.Contains(k.opts.Public, name)
	}
	return slices.ContainsFunc([]string{"HOST", "PORT", "USER", "DATABASE", "SSLMODE", "REGION", "ENDPOINT"}, func(end string) bool {
		return strings.HasSuffix(name, end)
	})
}

func (k *revokerKit) note(task *pluginv1.TaskRef, g *pluginv1.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made = append(k.made, madeGrant{task, g})
}

// grant makes a credential in the way that this revoker allows: by the plugin,
// at the issuer, or as an id that nobody knows.
func (k *revokerKit) grant(ctx context.Context, task *pluginv1.TaskRef, id string) (*pluginv1.Grant, error) {
	switch {
	case slices.Contains(k.opts.Features, featureGrants):
		return k.callGrant(ctx, task, id)
	case k.opts.Issuer.Mint != nil:
		g, err := k.opts.Issuer.Mint(ctx, task, id)
		if err != nil {
			return nil, fmt.Errorf("make a credential at the issuer: %w", err)
		}
		k.note(task, g)
		k.keepSecrets(g)
		return g, nil
	}
	return &pluginv1.Grant{GrantId: id}, nil
}

// real says whether grants of the kit are credentials that the issuer knows.
func (k *revokerKit) real() bool {
	return slices.Contains(k.opts.Features, featureGrants) || k.opts.Issuer.Mint != nil
}

// revoke calls Revoke for grants of a task.
func (k *revokerKit) revoke(ctx context.Context, task *pluginv1.TaskRef, stop string, ids ...string) (*pluginv1.RevokeResponse, error) {
	return k.callRevoke(ctx, &pluginv1.RevokeRequest{Task: task, StopId: stop, Grants: ids, Reason: "conformance"})
}

func (k *revokerKit) callRevoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	r, err := k.revoker().Revoke(ctx, req)
	k.hear(r.GetDetail(), err)
	if err == nil && r.GetResult() != acknowledged && r.GetResult() != refused {
		return r, fmt.Errorf("revoke answers with the result %v", r.GetResult())
	}
	return r, err
}

// cut revokes and wants it acknowledged.
func (k *revokerKit) cut(ctx context.Context, task *pluginv1.TaskRef, stop string, ids ...string) (*pluginv1.RevokeResponse, error) {
	r, err := k.revoke(ctx, task, stop, ids...)
	if err != nil {
		return nil, fmt.Errorf("revoke: %w", err)
	}
	if r.GetResult() != acknowledged {
		return nil, fmt.Errorf("revoke is %v (retryable %t): %s", r.GetResult(), r.GetRetryable(), r.GetDetail())
	}
	return r, nil
}

// verify calls Verify.
func (k *revokerKit) verify(ctx context.Context, task *pluginv1.TaskRef, ids ...string) (pluginv1.VerifyResult, error) {
	r, err := k.revoker().Verify(ctx, &pluginv1.VerifyRequest{Task: task, Grants: ids})
	k.hear(r.GetDetail(), err)
	if err != nil {
		return 0, fmt.Errorf("verify: %w", err)
	}
	switch r.GetResult() {
	case refusedByIssuer, stillAccepted, cannotTell:
		return r.GetResult(), nil
	}
	return 0, fmt.Errorf("verify answers with the result %v", r.GetResult())
}

// accepted wants a credential to work, where that can be seen.
func (k *revokerKit) accepted(ctx context.Context, g *pluginv1.Grant) error {
	return k.look(ctx, g, true)
}

// cutOff wants a credential not to work any more, where that can be seen.
func (k *revokerKit) cutOff(ctx context.Context, g *pluginv1.Grant) error {
	return k.look(ctx, g, false)
}

func (k *revokerKit) look(ctx context.Context, g *pluginv1.Grant, wanted bool) error {
	if k.opts.Issuer.Accepts == nil {
		return nil
	}
	got, err := k.opts.Issuer.Accepts(ctx, g)
	switch {
	case err != nil:
		return fmt.Errorf("try the credential at the issuer: %w", err)
	case got && !wanted:
		return fmt.Errorf("the issuer still accepts the credential of %q", g.GetGrantId())
	case !got && wanted:
		return fmt.Errorf("the issuer does not accept the credential of %q", g.GetGrantId())
	}
	return nil
}

// clean revokes what the check has made.
func (k *revokerKit) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.Timeout)
	defer cancel()
	k.mu.Lock()
	made := k.made
	k.made = nil
	k.mu.Unlock()
	for _, m := range made {
		if _, err := k.cut(ctx, m.task, "clean-"+newID(), m.grant.GetGrantId()); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}

// trouble brings a trouble about, runs while it lasts, and ends it.
func trouble(ctx context.Context, name string, begin func(context.Context) (func() error, error), while func() error) error {
	back, err := begin(ctx)
	if err != nil {
		return fmt.Errorf("bring about that the issuer %s: %w", name, err)
	}
	err = while()
	if ended := back(); ended != nil {
		err = errors.Join(err, fmt.Errorf("end that the issuer %s: %w", name, ended))
	}
	return err
}

// failed wants a revocation to have failed, as an answer or as an error, and
// says whether trying again may help.
func failed(r *pluginv1.RevokeResponse, err error) (retryable bool, wrong error) {
	if err != nil {
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted:
			return true, nil
		case codes.FailedPrecondition, codes.PermissionDenied, codes.InvalidArgument:
			return false, nil
		}
		return false, fmt.Errorf("revoke fails with an error that says nothing: %w", err)
	}
	if r.GetResult() == acknowledged {
		return false, errors.New("revoke is acknowledged, and the issuer has not confirmed it")
	}
	if r.GetDetail() == "" {
		return false, errors.New("revoke is refused without a word of detail")
	}
	return r.GetRetryable(), nil
}
