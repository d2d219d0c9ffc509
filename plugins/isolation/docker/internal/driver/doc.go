// Package driver is the isolation driver for containers of a Docker engine on
// this machine. It imports sdk, proto, the engine's official client and the
// kernel package beside it.
//
// The one idea: the engine holds everything there is to know. A cell is one
// container; what has to be found again stands in its name and labels, so that
// a driver process keeps nothing, and what the engine says of a container's
// end is checked against the kernel.
package driver
