// Package kernel looks at a container from below: its init by pid and start
// time, and the control groups that hold everything in it. It imports the
// standard library and x/sys only.
//
// The one idea: the engine is asked first, but what it says about the end of a
// container is checked against the kernel, and a container whose engine does
// not answer can still be killed.
package kernel
