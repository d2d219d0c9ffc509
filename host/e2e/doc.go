// Package e2e tests Airlock as it is run: the built programs as processes, real
// plugins, real cells, and a strict orchestrator at the other end of the wire.
// It imports host/internal/orchestrator and nothing else of the host.
package e2e
