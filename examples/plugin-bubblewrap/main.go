// Command airlock-isolation-bubblewrap is an isolation driver for Airlock over
// bubblewrap, the sandbox of Flatpak. It is an example of a third party's
// plugin: a Go module of its own, which imports the SDK and nothing else of
// Airlock.
package main

import "github.com/airlock-host/airlock/sdk/isolation"

func main() { isolation.Serve(newDriver()) }
