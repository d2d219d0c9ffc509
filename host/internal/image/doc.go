// Package image builds what the qemu-kvm driver boots: a kernel directory
// (vmlinux, kernel.json, modules/) and a root file system (root.ext4,
// root.json), in one directory or in two. It imports the standard library and
// golang.org/x/sys only; a kernel package is opened with dpkg-deb and the file
// system is made with mkfs.ext4.
//
// The one idea: an image holds nothing of Airlock. The cell agent comes in at
// boot, in an initramfs that the driver makes, so that a new agent needs no new
// image; and a root file system needs no init, no service and no setting of its
// own.
package image
