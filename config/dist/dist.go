// Package dist holds the files that Airlock is installed with: the default
// configuration, the systemd units and the package description. It imports
// nothing of Airlock. The one idea: what `airlock init` writes and what a
// package installs is one text.
package dist

import _ "embed"

// Config is the default configuration, for a host that runs as root.
//
//go:embed airlock.hcl
var Config string

// HostUnit is the systemd unit of the host.
//
//go:embed airlock.service
var HostUnit string

// CellsUnit is the systemd unit under which cells live, so that they survive a
// stop of the host.
//
//go:embed airlock-cells.service
var CellsUnit string
