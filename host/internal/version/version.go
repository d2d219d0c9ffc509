// Package version holds the build's version. It imports nothing.
package version

// Version is set by the linker.
var Version = "0.0.0-dev"
