// Command airlock-isolation-host-supervisor is the isolation driver that runs
// cells as processes of the machine itself. It imports sdk and the packages
// below it.
package main

import (
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/hostsupervisor/internal/driver"
	_ "github.com/airlock-host/airlock/plugins/isolation/hostsupervisor/internal/early"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

func main() {
	isolation.Serve(driver.New(plugin.Logger("host-supervisor"), time.Now))
}
