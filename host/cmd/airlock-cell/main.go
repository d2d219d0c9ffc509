// Command airlock-cell is the cell agent: a small static program that runs
// inside of every cell and owns the processes there. All of it is in
// host/internal/cellagent; nothing else may be imported here, for its size.
package main

import (
	"os"

	"github.com/airlock-host/airlock/host/internal/cellagent"
)

// version is set by the build.
var version = "0.0.0-dev"

func main() { os.Exit(cellagent.Main(os.Args[1:], version, os.Stdout, os.Stderr)) }
