// Package heads keeps the signed heads of the journals in a file outside the
// data directory, so that a database that was cut, rewritten or put back from
// an older copy is found out. It imports journal and nothing else of the host.
//
// The one idea: a head is a lower bound. It is written shortly after the
// commit that it follows from and never delays it; what the file says was
// there must be there.
package heads
