// Command airlock-revoker-file is an example of a third party's revoker. Its
// issuer is a file with one token a line: whoever presents a token that is in
// the file gets in. A grant adds a line, a revocation removes it.
//
// It is a module of its own and imports the sdk and the contract only.
package main

import "github.com/airlock-host/airlock/sdk/revoker"

func main() { revoker.Serve(&file{}) }
