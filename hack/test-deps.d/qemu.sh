# The qemu-kvm driver's tests boot real VMs: QEMU, the tools that make file
# systems, a static busybox as the guest's root, and a kernel, which is kept in
# the cache directory.
command -v qemu-system-x86_64 >/dev/null || install qemu-system-x86 qemu-utils
{ command -v mkfs.ext4 && command -v debugfs; } >/dev/null || PATH="$PATH:/usr/sbin:/sbin" command -v mkfs.ext4 >/dev/null || install e2fsprogs
[ -x /bin/busybox ] || install busybox-static
kernels="${AIRLOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/airlock}/kernel"
if ! compgen -G "$kernels/linux-image-*-cloud-amd64_*.deb" >/dev/null; then
	mkdir -p "$kernels"
	[ -n "${updated:-}" ] || { $sudo apt-get update -qq; updated=1; }
	# The meta package depends on the kernel of this release by its name.
	kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*-cloud-amd64\)$/\1/p' | head -n 1)
	(cd "$kernels" && apt-get download -qq "$kernel" >/dev/null)
fi
