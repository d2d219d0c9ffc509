package plugin

import (
	"os"
	"time"
)

// watchParent ends the process when its host has gone. The host asks the
// kernel for the same (Pdeathsig); this is the second line, for a host that
// could not.
func watchParent(exit func(code int)) {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			exit(3)
			return
		}
	}
}
