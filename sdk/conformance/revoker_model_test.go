package conformance_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	sdk "github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// errAway and errRefused are what the model of an issuer fails with.
var (
	errAway    = errors.New("nobody answers")
	errRefused = errors.New("the issuer refuses")
)

// modelIssuer is an issuer in memory that can be brought into trouble.
type modelIssuer struct {
	mu      sync.Mutex
	tokens  map[string]string // token to grant id
	revoked map[string]bool   // grant ids that never come back
	away    bool
	refuse  bool
	lie     bool
	stall   chan struct{} // not nil: closed when the trouble ends
	hold    string
	answers map[string]string // by stop id
}

func newModelIssuer() *modelIssuer {
	return &modelIssuer{tokens: map[string]string{}, revoked: map[string]bool{}, answers: map[string]string{}}
}

// state says how the issuer is, after the time that it takes.
func (m *modelIssuer) state(ctx context.Context, patience time.Duration) error {
	m.mu.Lock()
	stall, away, refuse := m.stall, m.away, m.refuse
	m.mu.Unlock()
	if stall != nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case <-stall:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errAway, ctx.Err())
		}
	}
	switch {
	case away:
		return errAway
	case refuse:
		return errRefused
	}
	return nil
}

// revoke cuts one grant.
func (m *modelIssuer) revoke(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold == id {
		return errRefused
	}
	if !m.lie {
		maps.DeleteFunc(m.tokens, func(_, of string) bool { return of == id })
	}
	m.revoked[id] = true
	return nil
}

func (m *modelIssuer) accepts(_ context.Context, g *pluginv1.Grant) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens[g.GetEnv()["TOKEN"]] != "", nil
}

// live says whether a grant has a token. The caller holds the lock.
func (m *modelIssuer) live(id string) bool {
	for _, of := range m.tokens {
		if of == id {
			return true
		}
	}
	return false
}

// set makes a trouble out of two changes of the model.
func (m *modelIssuer) set(begin, end func()) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		begin()
		return func() error { m.mu.Lock(); defer m.mu.Unlock(); end(); return nil }, nil
	}
}

func (m *modelIssuer) hooks() conformance.Issuer {
	return conformance.Issuer{
		Accepts: m.accepts,
		Away:    m.set(func() { m.away = true }, func() { m.away = false }),
		Refuse:  m.set(func() { m.refuse = true }, func() { m.refuse = false }),
		Lie:     m.set(func() { m.lie = true }, func() { m.lie = false; clear(m.tokens) }),
		Stall:   m.set(func() { m.stall = make(chan struct{}) }, func() { close(m.stall); m.stall = nil }),
		Hold: func(ctx context.Context, id string) (func() error, error) {
			return m.set(func() { m.hold = id }, func() { m.hold = "" })(ctx)
		},
		Answer: func(stop string) []byte { m.mu.Lock(); defer m.mu.Unlock(); return []byte(m.answers[stop]) },
	}
}

// modelRevoker is a revoker without a mistake; the functions are where a test
// puts one.
type modelRevoker struct {
	sdk.Defaults
	revoker.Unimplemented
	issuer *modelIssuer
	log    *strings.Builder

	describe  func(*pluginv1.DescribeResponse)
	configure func([]byte) error
	grant     func(context.Context, *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error)
	revoke    func(context.Context, *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error)
	verify    func(context.Context, *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error)
}

const patience = 300 * time.Millisecond

func (r *modelRevoker) Describe() *pluginv1.DescribeResponse {
	d := &pluginv1.DescribeResponse{
		Name: "model", Version: "1.0.0", Summary: "A model.", Features: []string{revoker.FeatureGrants},
		Schema: sdk.Schema(sdk.String("token", "A secret.", sdk.Sensitive())),
	}
	if r.describe != nil {
		r.describe(d)
	}
	return d
}

func (r *modelRevoker) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	if r.configure != nil {
		return r.configure(req.GetConfigJson())
	}
	var c struct {
		Token *string `json:"token"`
	}
	return sdk.DecodeConfig(req.GetConfigJson(), &c)
}

func (r *modelRevoker) Grant(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	if r.grant != nil {
		return r.grant(ctx, req)
	}
	return r.goodGrant(ctx, req)
}

func (r *modelRevoker) goodGrant(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	if err := r.issuer.state(ctx, patience); err != nil {
		return nil, sdk.Unavailable("%v", err)
	}
	id := req.GetGrantId()
	r.issuer.mu.Lock()
	defer r.issuer.mu.Unlock()
	if r.issuer.revoked[id] {
		return nil, sdk.FailedPrecondition("the grant was revoked")
	}
	r.issuer.tokens["token-of-"+id] = id
	return &pluginv1.GrantResponse{Grant: &pluginv1.Grant{GrantId: id, Env: map[string]string{"TOKEN": "token-of-" + id}}}, nil
}

func (r *modelRevoker) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	if r.revoke != nil {
		return r.revoke(ctx, req)
	}
	return r.goodRevoke(ctx, req)
}

func (r *modelRevoker) goodRevoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	if req.GetDryRun() {
		return &pluginv1.RevokeResponse{Result: acknowledged, Detail: "would revoke"}, nil
	}
	if err := r.issuer.state(ctx, patience); err != nil {
		return &pluginv1.RevokeResponse{Result: refused, Retryable: errors.Is(err, errAway), Detail: err.Error()}, nil
	}
	var failures []string
	for _, id := range req.GetGrants() {
		if err := r.issuer.revoke(id); err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", id, err))
		}
	}
	if len(failures) > 0 {
		return &pluginv1.RevokeResponse{Result: refused, Detail: strings.Join(failures, "; ")}, nil
	}
	r.issuer.mu.Lock()
	defer r.issuer.mu.Unlock()
	answer := "revoked for " + req.GetStopId()
	r.issuer.answers[req.GetStopId()] = answer
	digest := sha256.Sum256([]byte(answer))
	return &pluginv1.RevokeResponse{Result: acknowledged, Detail: "revoked", EvidenceDigest: digest[:]}, nil
}

func (r *modelRevoker) Verify(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	if r.verify != nil {
		return r.verify(ctx, req)
	}
	return r.goodVerify(ctx, req)
}

func (r *modelRevoker) goodVerify(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	if err := r.issuer.state(ctx, patience); err != nil {
		return &pluginv1.VerifyResponse{Result: cannotTell, Detail: err.Error()}, nil
	}
	r.issuer.mu.Lock()
	defer r.issuer.mu.Unlock()
	if slices.ContainsFunc(req.GetGrants(), r.issuer.live) {
		return &pluginv1.VerifyResponse{Result: stillAccepted}, nil
	}
	return &pluginv1.VerifyResponse{Result: refusedByIssuer}, nil
}

const (
	acknowledged    = pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED
	refused         = pluginv1.RevokeResult_REVOKE_RESULT_REFUSED
	refusedByIssuer = pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER
	stillAccepted   = pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED
	cannotTell      = pluginv1.VerifyResult_VERIFY_RESULT_CANNOT_TELL
)

// runKit runs the kit against the model; again makes the next process's model.
func runKit(t *testing.T, r *modelRevoker, again func() *modelRevoker, timeout time.Duration, only ...string) []conformance.Check {
	t.Helper()
	serve := func(r *modelRevoker) *grpc.ClientConn {
		return plugintest.Connect(t, func(s grpc.ServiceRegistrar) { revoker.Register(s, r) })
	}
	conn := serve(r)
	configure := &pluginv1.ConfigureRequest{Instance: "model", ConfigJson: []byte(`{"token": "the-configured-secret"}`)}
	if _, err := pluginv1.NewPluginClient(conn).Configure(t.Context(), configure); err != nil && r.configure == nil {
		t.Fatal(err)
	}
	return conformance.Revoker(t.Context(), pluginv1.NewRevokerClient(conn), conformance.RevokerOptions{
		Plugin: pluginv1.NewPluginClient(conn), Configure: configure, HostID: "host", Features: r.Describe().GetFeatures(),
		Issuer: r.issuer.hooks(), Secrets: []string{"the-configured-secret"}, Timeout: timeout, Only: only,
		Logs: func() string { r.issuer.mu.Lock(); defer r.issuer.mu.Unlock(); return r.log.String() },
		Restart: func(context.Context) (pluginv1.RevokerClient, error) {
			return pluginv1.NewRevokerClient(serve(again())), nil
		},
	})
}

func newModel() *modelRevoker {
	return &modelRevoker{issuer: newModelIssuer(), log: &strings.Builder{}}
}

func TestRevokerKitPassesAGoodRevoker(t *testing.T) {
	t.Parallel()
	r := newModel()
	for _, c := range runKit(t, r, func() *modelRevoker { return r }, time.Minute) {
		if c.Result != conformance.Pass {
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
}
