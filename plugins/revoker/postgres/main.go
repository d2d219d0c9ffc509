// Command airlock-revoker-postgres makes one PostgreSQL role a mission and
// takes it away again. It imports the sdk, pgx and the standard library.
//
// The one idea: a revocation first makes the role unable to log in, then ends
// its sessions, and only then tidies up, so that a failure anywhere leaves the
// access cut; and it is acknowledged only after the server was seen without
// both.
package main

import "github.com/airlock-host/airlock/sdk/revoker"

func main() { revoker.Serve(newPostgres()) }
