// Package files serves a directory of the host to a guest's kernel, which
// speaks FUSE over a byte stream. It imports the standard library and
// golang.org/x/sys only.
//
// The one idea: a name of the guest is resolved one component at a time below a
// descriptor that is already held, and never by a path, so no link and no
// rename leads out of the directory. And whatever the guest's kernel may claim,
// it can do no more than the uid that the server runs as.
package files
