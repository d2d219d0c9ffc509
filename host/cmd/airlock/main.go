// Command airlock is the host daemon and its command line.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/daemon"
)

func main() {
	root := &cobra.Command{Use: "airlock", SilenceErrors: true}
	root.AddCommand(daemon.ServeCommand(), daemon.DevCommand())
	if err := root.Execute(); err != nil {
		if code, ok := daemon.ExitCode(err); ok {
			os.Exit(code)
		}
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
