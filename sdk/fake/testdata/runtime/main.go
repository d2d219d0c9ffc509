// Command airlock-runtime-fake serves the fake runtime plugin, for tests.
package main

import (
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/runtime"
)

func main() { runtime.Serve(fake.NewRuntime()) }
