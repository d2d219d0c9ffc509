// Command airlock is the host daemon and its command line.
package main

import (
	"context"
	"os"

	"github.com/airlock-host/airlock/host/internal/cli"
	"github.com/airlock-host/airlock/host/internal/cli/configcmd"
	"github.com/airlock-host/airlock/host/internal/daemon"
	"github.com/airlock-host/airlock/host/internal/version"
)

func main() {
	root := cli.NewRoot(version.Version, daemon.ServeCommand(), daemon.DevCommand(),
		configcmd.Init(), configcmd.Fmt(), configcmd.Validate(daemon.CheckPlugins, cli.Running))
	os.Exit(cli.Execute(context.Background(), root, daemon.ExitCode))
}
