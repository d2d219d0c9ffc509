// Package packages holds the tests of the deb and rpm packages: what is in them,
// that the same commit makes the same bytes, and what they do on a machine with
// systemd and cgroup v2. It has no code of its own. The one idea: the machine is
// a VM of the test's own, so that packages are installed, upgraded and purged
// for real, and nothing of it touches the machine that runs the tests.
package packages
