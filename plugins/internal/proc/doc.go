// Package proc names processes so that a recycled pid is never mistaken for
// the one that was meant, and waits for and signals them by pidfd. It imports
// the standard library and golang.org/x/sys only. The one idea: a pid is not
// an identity; a pid with its start ticks and the boot id is (fault F13).
package proc
