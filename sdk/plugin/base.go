// Package plugin is what every Airlock plugin shares, whatever its kind: how
// it is started, described, configured and watched. Plugin authors use it
// through sdk/isolation, sdk/runtime and sdk/revoker. It imports proto and
// nothing of the host.
//
// The one idea: a plugin process is disposable. It may be killed, hung or
// replaced at any time, so it holds nothing that a running mission needs.
package plugin

import (
	"context"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Base is the part of a plugin that every kind has. Embed Defaults to get
// Validate, Shutdown and Health for free.
//
// The host calls methods concurrently. A panic in a method is turned into an
// Internal error with the stack in the log; it does not end the process.
type Base interface {
	// Describe says what the plugin is. It is called first, also before
	// Configure, and again now and then as a sign of life: it must answer at
	// once and touch nothing outside of the process. Kind and contracts are
	// filled in by Serve when they are left empty.
	Describe() *pluginv1.DescribeResponse

	// Validate checks a configuration and has no side effect. The host has
	// checked it against the schema before: config is a JSON object with every
	// attribute of the schema, defaults filled in, null where there is no
	// value. No diagnostics = good. Use Problem and Warning to make them; their
	// path leads the operator to the line.
	Validate(ctx context.Context, config []byte) []*pluginv1.Diagnostic

	// Configure hands over the configuration, which Validate has passed. It is
	// called once after every start, and again with a changed configuration
	// for a live reconfigure. Return NeedsRestart for a change that only a new
	// process can take; the old configuration must then stay in force. The
	// host may configure a new process of the instance while the old one still
	// answers calls (reload), so a plugin must not hold exclusive locks.
	//
	// A missing outside part (an engine that is down) is no error here: report
	// it by Health, so that the instance comes back by itself.
	Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error

	// Shutdown asks to tidy up. The process is ended afterwards, also when
	// this takes too long or was never called. It must not end cells or
	// sessions.
	Shutdown(ctx context.Context) error

	// Health is where the plugin reports how it is. It is called once for
	// every stream that the host opens and must always return the same value.
	// A plugin that never sets it is healthy from its first good Configure on.
	Health() *Health
}

// Defaults gives a plugin the parts of Base that it has no use for: a Validate
// that finds nothing, a Shutdown with nothing to tidy, and a Health. Embed it
// by value.
type Defaults struct {
	health Health
}

// Validate finds nothing.
func (*Defaults) Validate(context.Context, []byte) []*pluginv1.Diagnostic { return nil }

// Shutdown does nothing.
func (*Defaults) Shutdown(context.Context) error { return nil }

// Health is the plugin's health; set it at any time from any goroutine.
func (d *Defaults) Health() *Health { return &d.health }
