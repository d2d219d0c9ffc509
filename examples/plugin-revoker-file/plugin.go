package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// config is an instance's config block.
type config struct {
	Path string `json:"path"`
}

// file is the plugin. Embedding Defaults and Unimplemented gives it the parts
// of the contract that it has no use for.
type file struct {
	plugin.Defaults
	revoker.Unimplemented

	tokens atomic.Pointer[tokens] // nil: not configured
}

// Describe says what the plugin is. The feature "grants" makes the host call
// Grant.
func (*file) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Name: "file", Version: "0.1.0", Features: []string{revoker.FeatureGrants},
		Summary: "Keeps tokens in a file, one a line.",
		Schema: plugin.Schema(
			plugin.String("path", "The file of tokens; made when it is missing.", plugin.Required(), plugin.AbsolutePath()),
		),
		Needs: []*pluginv1.Need{{What: "path", Value: "the file of tokens", Reason: "to add and remove lines"}},
	}
}

// Configure reads the configuration. It may come again with another one.
func (f *file) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	var c config
	if err := plugin.DecodeConfig(req.GetConfigJson(), &c); err != nil {
		return err
	}
	if !filepath.IsAbs(c.Path) {
		return plugin.InvalidArgument("path: %q is not absolute", c.Path)
	}
	f.tokens.Store(&tokens{path: c.Path})
	return nil
}

// label stands for a grant in the file. Ids may hold anything, line ends too.
func label(task *pluginv1.TaskRef, grantID string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q %q", task.GetHostId(), grantID)))
	return hex.EncodeToString(sum[:16])
}

// Grant adds a line. The same grant again answers the same token: the host may
// have lost the first answer.
func (f *file) Grant(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	t := f.tokens.Load()
	if t == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	token, err := t.add(ctx, label(req.GetTask(), req.GetGrantId()), rand.Text())
	if err != nil {
		return nil, err
	}
	return &pluginv1.GrantResponse{Grant: &pluginv1.Grant{
		GrantId: req.GetGrantId(), Env: map[string]string{"FILE_TOKEN": token},
	}}, nil
}

// Revoke removes lines. A grant without a line is done already, and so is a
// stop that comes twice.
func (f *file) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	t := f.tokens.Load()
	if t == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	var labels []string
	for _, g := range req.GetGrants() {
		labels = append(labels, label(req.GetTask(), g))
	}
	if req.GetDryRun() {
		alive, err := t.alive(labels)
		if err != nil {
			return nil, err
		}
		return &pluginv1.RevokeResponse{
			Result: pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED, Detail: fmt.Sprintf("dry run: %d lines would be removed", len(alive)),
		}, nil
	}
	content, err := t.remove(ctx, labels)
	if err != nil {
		// Not an acknowledgement, whatever it was. Nobody answers for a file,
		// so that trying again may always help.
		return &pluginv1.RevokeResponse{
			Result: pluginv1.RevokeResult_REVOKE_RESULT_REFUSED, Retryable: true, Detail: "the file of tokens: " + err.Error(),
		}, nil
	}
	digest := sha256.Sum256(content)
	return &pluginv1.RevokeResponse{
		Result: pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED, EvidenceDigest: digest[:],
		Detail: fmt.Sprintf("%d grants have no line any more", len(labels)),
	}, nil
}

// Verify reads the file as whoever lets tokens in would.
func (f *file) Verify(_ context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	t := f.tokens.Load()
	if t == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	for _, g := range req.GetGrants() {
		alive, err := t.alive([]string{label(req.GetTask(), g)})
		if err != nil {
			return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_CANNOT_TELL, Detail: err.Error()}, nil
		}
		if len(alive) > 0 {
			return &pluginv1.VerifyResponse{
				Result: pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED, Detail: "grant " + g + " has a line",
			}, nil
		}
	}
	return &pluginv1.VerifyResponse{Result: pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER}, nil
}

// line is "LABEL TOKEN"; of a revoked grant "LABEL revoked", so that a Grant
// that was on its way while the stop ran cannot bring it back.
func find(lines []string, label string) int {
	return slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, label+" ") })
}
