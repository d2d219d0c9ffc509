// Package conformance checks a driver against the contract, through its gRPC
// client alone: `airlock plugin test` runs it against a built plugin, a
// driver's own tests against theirs. It imports proto, sdk/cell and the
// standard library.
//
// The one idea: what a check looks at is real. Processes are started through
// the cell link, and whether they still run is seen by the files that they
// write, not by what the driver says.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Result of a check.
type Result string

// A capability that is declared and does not work is a failure; one that is
// not declared is shown as such.
const (
	Pass        Result = "pass"
	Fail        Result = "fail"
	NotDeclared Result = "not_declared"
)

// Check is what came of one check.
type Check struct {
	// Name is the check's name, for example "stop-while-paused".
	Name string `json:"name"`
	// Result says how it went.
	Result Result `json:"result"`
	// Detail says what was wrong, or why it is not declared.
	Detail string `json:"detail"`
	// Took is how long it ran.
	Took time.Duration `json:"-"`
}

// Options says what to check with.
type Options struct {
	// AgentBinary and AgentSHA256 are the cell agent, as in CellSpec.
	AgentBinary string
	AgentSHA256 string
	// Dir is an existing directory for link directories and volumes. Keep its
	// path short: sockets lie below it.
	Dir string
	// HostID is the host id of the plugin's Configure.
	HostID string
	// Features are those that the plugin declares.
	Features []string
	// UID and GID are the workload's; 0 = the driver's own choice.
	UID, GID uint32
	// Owner is whom link directories and volumes belong to; 0 = the caller. It
	// is the plugin's own user where that is another one.
	Owner int
	// Network is the mode that cells are made with; unspecified = NONE, or OPEN
	// when the driver refuses that.
	Network pluginv1.NetworkMode
	// Restart kills the plugin with SIGKILL and starts it again with the same
	// configuration and state. nil = checks that need it are not run.
	Restart func(context.Context) (pluginv1.IsolationClient, error)
	// AtOnce is how many cells concurrent-50 makes at the same time; 0 = 50.
	// Where it is another number the check's detail says so.
	AtOnce int
	// ShareCell lets the checks of sessions, output, exits and the link use one
	// cell, one after the other, for drivers that need seconds to make one.
	ShareCell bool
	// Timeout bounds one check; 0 = a minute.
	Timeout time.Duration
	// Only names the checks to run; none = all.
	Only []string
	// Progress is called after every check; nil = nobody asks.
	Progress func(Check)

	secret func([]byte) // learns every link secret
}

// isolationCheck is one check of a driver.
type isolationCheck struct {
	name    string
	feature string // that it needs
	run     func(context.Context, *kit) error
}

// Isolation runs every check of an isolation driver, one after the other, and
// removes every cell that it made. The plugin must be configured.
func Isolation(ctx context.Context, client pluginv1.IsolationClient, opts Options) []Check {
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	k := &kit{client: client, opts: opts}
	if opts.Network == pluginv1.NetworkMode_NETWORK_MODE_UNSPECIFIED {
		k.opts.Network = k.network(ctx)
	}
	var out []Check
	checks := slices.DeleteFunc(isolationChecks(), func(c isolationCheck) bool {
		return len(opts.Only) > 0 && !slices.Contains(opts.Only, c.name)
	})
	for i, c := range checks {
		k.sharing(c, checks[i+1:])
		out = append(out, k.check(ctx, c))
		if opts.Progress != nil {
			opts.Progress(out[len(out)-1])
		}
	}
	return out
}

func isolationChecks() []isolationCheck {
	return slices.Concat(startChecks(), specChecks(), sessionChecks(), outputChecks(), exitChecks(), linkChecks(),
		stopChecks(), recoverChecks(), observeChecks(), errorChecks(), limitChecks(), checkpointChecks())
}

// network is the mode that a driver makes cells with.
func (k *kit) network(ctx context.Context) pluginv1.NetworkMode {
	ctx, cancel := context.WithTimeout(ctx, k.opts.Timeout)
	defer cancel()
	defer func() { _ = k.clean(ctx) }()
	const none = pluginv1.NetworkMode_NETWORK_MODE_NONE
	spec, err := k.spec()
	if err != nil {
		return none
	}
	spec.Network.Mode = none
	if _, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: spec}); status.Code(err) == codes.FailedPrecondition {
		return pluginv1.NetworkMode_NETWORK_MODE_OPEN
	}
	return none
}

func (k *kit) check(ctx context.Context, c isolationCheck) (got Check) {
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
	k.release(err != nil)
	got.settle(errors.Join(err, k.clean(ctx)))
	if got.Result == Pass {
		got.Detail = k.note
	}
	k.note = ""
	return got
}

// settle is what a check's error means.
func (c *Check) settle(err error) {
	var undeclared *notDeclaredError
	switch {
	case err == nil:
	case errors.As(err, &undeclared):
		c.Result, c.Detail = NotDeclared, undeclared.why
	default:
		c.Result, c.Detail = Fail, err.Error()
	}
}

// notDeclaredError ends a check that the driver says it does not do.
type notDeclaredError struct{ why string }

func (e *notDeclaredError) Error() string { return "not declared: " + e.why }

func notDeclared(format string, args ...any) error {
	return &notDeclaredError{fmt.Sprintf(format, args...)}
}
