// Package packages holds the tests of the deb and rpm packages: what is in them.
// It has no code of its own. The
// one idea: packages are read with the tools of those who install them.
package packages
