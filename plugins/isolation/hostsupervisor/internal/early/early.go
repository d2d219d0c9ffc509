// Package early makes a process of this plugin that was started as a stage be
// one before anything else of the program is initialised. It may import
// sdk/stage alone: whatever else it imports delays every start of a cell that
// takes this way.
package early

import "github.com/airlock-host/airlock/sdk/stage"

// The one init of this plugin, since main comes too late: see stage.Early. It
// does nothing in any other process.
func init() { stage.Early() }
