// Package dockertest starts a real Docker engine for tests: private, in a
// directory of its own, without a bridge and without touching the machine's
// firewall, and takes everything away afterwards. It imports the engine's
// official client and the standard library; tests of the host use it too.
//
// The one idea: what a test kills or hangs is its own engine, never one that
// the machine runs.
package dockertest
