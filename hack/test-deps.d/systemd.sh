# shellcheck shell=bash
# The packages are installed, upgraded and purged in a VM that is booted with
# systemd. Its root is Debian's essential packages and systemd, made once for
# every version of this script and kept in the cache directory.
systemd_cache="${AIRLOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/airlock}"
systemd_root="$systemd_cache/systemd-root-$(sha256sum test-deps.d/systemd.sh | cut -c1-16).ext4"

systemd_make() (
	set -e
	command -v mmdebstrap >/dev/null || install mmdebstrap
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || install debian-archive-keyring
	mkdir -p "$systemd_cache"
	work=$(mktemp -d "$systemd_cache/systemd.XXXXXX")
	trap '$sudo rm -rf --one-file-system "$work"' EXIT
	$sudo mmdebstrap --quiet --variant=essential --include=systemd,systemd-sysv,passwd \
		--aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		bookworm "$work/root" http://deb.debian.org/debian
	cd "$work/root"
	# Airlock's packages have manual pages; nothing here has a network, a user who
	# logs in, or a first boot.
	$sudo rm -rf etc/dpkg/dpkg.cfg.d/* var/cache/apt var/lib/apt/lists usr/share/doc usr/share/locale
	echo force-unsafe-io | $sudo tee etc/dpkg/dpkg.cfg.d/airlock-ci >/dev/null
	echo 5d3b0a4e9c2f4f0b8f0e6a1c7d5b9e21 | $sudo tee etc/machine-id >/dev/null
	echo airlock-ci | $sudo tee etc/hostname >/dev/null
	echo "127.0.0.1 localhost airlock-ci" | $sudo tee etc/hosts >/dev/null
	for unit in getty@tty1.service serial-getty@ttyS0.service systemd-logind.service systemd-random-seed.service \
		systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-networkd.service systemd-resolved.service \
		systemd-timesyncd.service systemd-pstore.service systemd-journal-flush.service systemd-sysctl.service \
		systemd-remount-fs.service modprobe@configfs.service modprobe@dm_mod.service modprobe@drm.service \
		modprobe@efi_pstore.service modprobe@fuse.service modprobe@loop.service sys-kernel-debug.mount \
		sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount e2scrub_reap.service getty.target; do
		$sudo ln -sf /dev/null "etc/systemd/system/$unit"
	done
	# What is to be done comes as a tar on the second disk; how it went goes to the
	# serial port.
	$sudo tee etc/systemd/system/airlock-ci.service >/dev/null <<-'EOF'
		[Unit]
		Description=Install, upgrade and purge Airlock
		[Service]
		Type=oneshot
		StandardOutput=file:/dev/ttyS0
		StandardError=file:/dev/ttyS0
		ExecStart=/bin/sh -c 'mkdir -p /srv/ci && tar -C /srv/ci -xf /dev/vdb && exec /bin/sh /srv/ci/guest.sh'
		ExecStopPost=/bin/systemctl poweroff --force --force
	EOF
	$sudo mkdir -p etc/systemd/system/multi-user.target.wants
	$sudo ln -sf ../airlock-ci.service etc/systemd/system/multi-user.target.wants/
	cd "$work"
	PATH="$PATH:/usr/sbin:/sbin"
	truncate -s 1200M root.ext4
	$sudo mkfs.ext4 -q -F -O ^has_journal -d root root.ext4
	mv -f root.ext4 "$systemd_root"
)

[ -s "$systemd_root" ] || systemd_make
