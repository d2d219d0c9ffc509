// Command airlock-revoker-fake serves the fake revoker plugin, for tests.
package main

import (
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/revoker"
)

func main() { revoker.Serve(fake.NewRevoker()) }
