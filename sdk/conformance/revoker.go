package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Issuer is the outside of a revoker, in the hands of whoever runs the kit.
// The kit believes what it sees there and never what the revoker says of it.
// Each function may be nil; the checks that need it are then not declared.
//
// Functions that bring a trouble about return one that ends it; the kit calls
// that once.
type Issuer struct {
	// Mint makes a credential at the issuer, for a revoker without the feature
	// "grants".
	Mint func(ctx context.Context, task *pluginv1.TaskRef, grantID string) (*pluginv1.Grant, error)
	// Accepts tries a credential at the issuer itself.
	Accepts func(context.Context, *pluginv1.Grant) (bool, error)
	// Away makes the issuer unreachable.
	Away func(context.Context) (back func() error, err error)
	// Refuse makes the issuer refuse revocations for good: trying again does
	// not help.
	Refuse func(context.Context) (back func() error, err error)
	// Stall makes the issuer take requests and leave them unanswered.
	Stall func(context.Context) (back func() error, err error)
	// Hold makes the issuer fail for one grant, not for the others.
	Hold func(ctx context.Context, grantID string) (back func() error, err error)
	// Lie makes the issuer confirm revocations without cutting anything.
	Lie func(context.Context) (back func() error, err error)
	// Answer is what the issuer answered to a stop, byte for byte, where the
	// revoker's evidence is the digest of that.
	Answer func(stopID string) []byte
}

// RevokerOptions says what to check a revoker with.
type RevokerOptions struct {
	// Plugin is the process's Plugin service. nil = the checks of description,
	// schema, health and configuration are left out: whoever runs the kit does
	// them for every kind of plugin.
	Plugin pluginv1.PluginClient
	// Configure is what the plugin was configured with; used with Plugin.
	Configure *pluginv1.ConfigureRequest
	// HostID is the host id of the plugin's Configure.
	HostID string
	// Features are those that the plugin declares.
	Features []string
	// Request is the request of a grant, as in an agent block; nil = {}.
	Request json.RawMessage
	// Issuer is the other side.
	Issuer Issuer
	// Restart kills the plugin with SIGKILL and starts it again with the same
	// configuration and state. nil = checks that need it are not declared.
	Restart func(context.Context) (pluginv1.RevokerClient, error)
	// Logs is all that the plugin has written so far; nil = not looked at.
	Logs func() string
	// Secrets are those of the configuration. They are looked for in logs and
	// answers, beside the credentials that the kit was given.
	Secrets []string
	// Public names variables of a grant's environment that are no secrets, for
	// example PGUSER; nil = those whose name ends in HOST, PORT, USER, DATABASE,
	// SSLMODE, REGION or ENDPOINT.
	Public []string
	// Timeout bounds one check; 0 = a minute.
	Timeout time.Duration
	// Only names the checks to run; none = all.
	Only []string
}

// revokerCheck is one check of a revoker.
type revokerCheck struct {
	name    string
	feature string // that it needs
	run     func(context.Context, *revokerKit) error
}

// Revoker runs every check of a revoker, one after the other, and revokes
// every credential that it was given. The plugin must be configured. A check
// whose hook is missing or whose feature is not declared is shown as such.
func Revoker(ctx context.Context, client pluginv1.RevokerClient, opts RevokerOptions) []Check {
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	if opts.Request == nil {
		opts.Request = json.RawMessage("{}")
	}
	k := &revokerKit{opts: opts}
	k.use(client)
	checks := slices.Concat(grantChecks(), cutChecks(), issuerChecks(), verifyChecks(), crashChecks(), recordChecks())
	if opts.Plugin != nil {
		checks = append(revokerLoadChecks(), checks...)
	}
	var out []Check
	for _, c := range checks {
		if len(opts.Only) > 0 && !slices.Contains(opts.Only, c.name) {
			continue
		}
		out = append(out, k.check(ctx, c))
	}
	return out
}

func (k *revokerKit) check(ctx context.Context, c revokerCheck) (got Check) {
	got = Check{Name: c.name, Result: Pass}
	begun := time.Now()
	defer func() { got.Took = time.Since(begun) }()
	if c.feature != "" && !slices.Contains(k.opts.Features, c.feature) {
		got.Result, got.Detail = NotDeclared, "feature "+c.feature
		return got
	}
	checkCtx, cancel := context.WithTimeout(ctx, k.opts.Timeout)
	err := c.run(checkCtx, k)
	cancel()
	clean := k.clean(ctx)
	var undeclared *notDeclaredError
	switch {
	case err == nil && clean == nil:
	case clean == nil && errors.As(err, &undeclared):
		got.Result, got.Detail = NotDeclared, undeclared.why
	default:
		got.Result, got.Detail = Fail, errors.Join(err, clean).Error()
	}
	return got
}
