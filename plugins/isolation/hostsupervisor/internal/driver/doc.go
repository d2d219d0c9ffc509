// Package driver is the host-supervisor isolation driver: each cell is one
// cell agent that the driver starts in namespaces and control groups of the
// machine itself. It imports sdk and proto, and the packages beside it.
//
// The one idea: the driver remembers nothing that the kernel or its record on
// disk does not say. A cell is a directory in the state directory, a process
// by pid, start ticks and boot id, and control groups by the cell's id; any
// driver process can take up what another one made.
package driver
