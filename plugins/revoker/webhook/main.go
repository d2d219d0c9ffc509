// Command airlock-revoker-webhook asks an issuer over HTTP to cut a task's
// access: a signed POST, answered by JSON. It imports the sdk and the standard
// library.
//
// The one idea: only an answer that says exactly {"revoked": true} is an
// acknowledgement; everything else, however friendly, is a failure with a
// reason.
package main

import "github.com/airlock-host/airlock/sdk/revoker"

func main() { revoker.Serve(newWebhook()) }
