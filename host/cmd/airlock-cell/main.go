// Command airlock-cell is the cell agent: a small static program that runs
// inside of every cell and owns the processes there. All of it is in
// host/internal/cellagent, and in sdk/stage what it does where it makes the
// cell's place itself; nothing else may be imported here, for its size.
//
// It joins its control groups after it has started: what the runtime would hold
// open of the machine's until then is nothing to keep in a cell.
//
//go:debug containermaxprocs=0
package main

import (
	"os"

	"github.com/airlock-host/airlock/host/internal/cellagent"
	"github.com/airlock-host/airlock/sdk/stage"
)

// version is set by the build.
var version = "0.0.0-dev"

func main() {
	os.Exit(stage.Main(os.Args, func(args []string) int {
		return cellagent.Main(args, version, os.Stdout, os.Stderr)
	}))
}
