package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// name and version of the plugin.
const (
	name    = "webhook"
	version = "0.1.0"
)

const (
	acknowledged = pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED
	refused      = pluginv1.RevokeResult_REVOKE_RESULT_REFUSED
)

// webhook is the plugin. It holds nothing but its configuration.
type webhook struct {
	plugin.Defaults
	revoker.Unimplemented

	now     func() time.Time
	log     hclog.Logger
	current atomic.Pointer[settings] // nil: not configured
}

func newWebhook() *webhook { return &webhook{now: time.Now, log: plugin.Logger(name)} }

// Describe says what the plugin is.
func (*webhook) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_REVOKER, Name: name, Version: version, Contracts: []string{plugin.Contract},
		Summary: "Asks an issuer to revoke by a signed HTTP POST; only {\"revoked\": true} counts as done.",
		Schema:  schema(),
		Needs:   []*pluginv1.Need{{What: "host", Value: "the host of url", Reason: "to ask the issuer"}},
	}
}

// revocation is the body of a request to url.
type revocation struct {
	TaskID      string   `json:"task_id"`
	StopID      string   `json:"stop_id"`
	Grants      []string `json:"grants"`
	Sessions    []string `json:"sessions"`
	Delegations []string `json:"delegations"`
	Reason      string   `json:"reason"`
}

// Revoke asks the issuer once; trying again is the host's part, with the same
// stop id.
func (w *webhook) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	s, err := w.configured()
	if err != nil {
		return nil, err
	}
	if req.GetStopId() == "" || req.GetTask().GetTaskId() == "" {
		return nil, plugin.InvalidArgument("a revocation needs a task and a stop id")
	}
	what := fmt.Sprintf("%d grants, %d sessions and %d delegations", len(req.GetGrants()), len(req.GetSessions()), len(req.GetDelegations()))
	if req.GetDryRun() {
		return &pluginv1.RevokeResponse{
			Result: acknowledged, Detail: fmt.Sprintf("dry run: %s would be asked to revoke the task, %s", place(s.url), what),
		}, nil
	}
	body, err := json.Marshal(revocation{
		TaskID: req.GetTask().GetTaskId(), StopID: req.GetStopId(), Reason: req.GetReason(),
		Grants: list(req.GetGrants()), Sessions: list(req.GetSessions()), Delegations: list(req.GetDelegations()),
	})
	if err != nil {
		return nil, plugin.InvalidArgument("the revocation cannot be written as JSON: %v", err)
	}
	got, failed := s.post(ctx, s.url, req.GetStopId(), body, w.now())
	if failed != nil {
		return w.refuse(s, failed, nil), nil
	}
	digest := sha256.Sum256(got.body)
	if yes, why := literalTrue(got.body, "revoked"); !yes {
		return w.refuse(s, &failure{why: fmt.Sprintf("%s answered with %d, but %s", place(s.url), got.status, why)}, digest[:]), nil
	}
	w.log.Info("the issuer has revoked", "stop_id", req.GetStopId(), "grants", len(req.GetGrants()), "status", got.status)
	w.Health().Healthy(map[string]string{"issuer": place(s.url)})
	return &pluginv1.RevokeResponse{
		Result: acknowledged, Detail: fmt.Sprintf("%s has revoked the task, %s", place(s.url), what), EvidenceDigest: digest[:],
	}, nil
}

// refuse makes the answer of a failure. Only a failure that trying again may
// cure says something of the issuer's health.
func (w *webhook) refuse(s *settings, f *failure, digest []byte) *pluginv1.RevokeResponse {
	w.log.Warn("the issuer has not revoked", "why", f.why, "retryable", f.retryable)
	if f.retryable {
		w.Health().Degraded("the last revocation failed: "+f.why, map[string]string{"issuer": place(s.url)})
	}
	return &pluginv1.RevokeResponse{Result: refused, Retryable: f.retryable, Detail: f.why, EvidenceDigest: digest}
}

// verification is the body of a request to verify_url.
type verification struct {
	TaskID string   `json:"task_id"`
	Grants []string `json:"grants"`
}

// Verify asks verify_url, where there is one: {"accepted": false} is refused,
// {"accepted": true} still accepted, and anything else tells nothing.
func (w *webhook) Verify(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	s, err := w.configured()
	if err != nil {
		return nil, err
	}
	cannotTell := func(why string) (*pluginv1.VerifyResponse, error) {
		return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_CANNOT_TELL, Detail: why}, nil
	}
	if s.verifyURL == "" {
		return cannotTell("no verify_url is configured")
	}
	body, err := json.Marshal(verification{req.GetTask().GetTaskId(), list(req.GetGrants())})
	if err != nil {
		return nil, plugin.InvalidArgument("the question cannot be written as JSON: %v", err)
	}
	got, failed := s.post(ctx, s.verifyURL, "", body, w.now())
	if failed != nil {
		return cannotTell(failed.why)
	}
	accepted, why := literalBool(got.body, "accepted")
	switch {
	case why != "":
		return cannotTell(place(s.verifyURL) + ": " + why)
	case accepted:
		return &pluginv1.VerifyResponse{
			Result: pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED, Detail: "the issuer still accepts a grant",
		}, nil
	}
	return &pluginv1.VerifyResponse{
		Result: pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER, Detail: "the issuer accepts none of the grants",
	}, nil
}

func (w *webhook) configured() (*settings, error) {
	s := w.current.Load()
	if s == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	return s, nil
}

// list makes an empty JSON array of none.
func list(ids []string) []string {
	if ids == nil {
		return []string{}
	}
	return ids
}
