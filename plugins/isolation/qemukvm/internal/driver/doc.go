// Package driver is the qemu-kvm isolation driver: each cell is a VM, a QEMU
// process that the driver starts and does not keep. It imports sdk and proto,
// and the packages beside it.
//
// The one idea: the driver remembers nothing that the kernel, QEMU or its
// record on disk does not say. A cell is a directory in the state directory,
// two processes by pid, start ticks and boot id (QEMU and its helper), and
// control groups by the cell's id; any driver process can take up what another
// one made.
package driver
