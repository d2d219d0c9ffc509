// Package telemetry tells others how the host is: metrics for Prometheus and
// traces over OTLP. It may import the domains and nothing of the host that acts.
//
// The one idea: it looks at what was committed and never at what is under way.
// Metrics count facts, a trace is a projection of a mission's journal; neither
// can hold a mission up, and none of them is the truth.
package telemetry
