// Command airlock-isolation-fake serves the fake isolation plugin, for tests.
package main

import (
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/isolation"
)

func main() { isolation.Serve(fake.NewDriver()) }
