// Command airlock-isolation-qemu-kvm is the isolation driver that runs cells as
// virtual machines with QEMU. It imports sdk and the packages below it.
package main

import (
	"os"
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/driver"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/kvm"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == helper.Argument {
		os.Exit(helper.Main())
	}
	isolation.Serve(driver.New(plugin.Logger("qemu-kvm"), time.Now, kvm.Probe))
}
