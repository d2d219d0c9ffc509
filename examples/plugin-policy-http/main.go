// Command airlock-policy-http is an example of a third party's policy plugin.
// It asks an HTTP endpoint for its opinion of each call: a model, a rule
// engine, a script.
//
// It is a module of its own and imports the sdk and the contract only.
package main

import "github.com/airlock-host/airlock/sdk/policy"

func main() { policy.Serve(&judge{}) }
