// Command airlock-isolation-docker is the isolation driver that runs each cell
// as a container of a Docker engine on this machine. It imports sdk and the
// packages below it.
package main

import (
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/driver"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

func main() {
	isolation.Serve(driver.New(plugin.Logger(driver.Name), time.Now))
}
