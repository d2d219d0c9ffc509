// Command granting is a revoker plugin for tests: issuer and revoker in one,
// whose credentials are names of grants.
package main

import (
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/revoker"
)

func main() { revoker.Serve(fake.NewRevoker()) }
