#!/bin/sh
# Installs what is missing, and again what was damaged. Nothing else is touched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
need PACKAGES
need ISOLATION
cd "$PACKAGES" || die "there is no directory $PACKAGES"
set --
for package in $(wanted); do
	if has "$package"; then
		say "kept: $package"
		continue
	fi
	file=$(find . -maxdepth 1 -name "${package}_*_$(dpkg --print-architecture).deb" | sed 's|^\./||')
	[ "$(printf '%s\n' "$file" | grep -c .)" = 1 ] || die "$PACKAGES holds not one package $package for this machine, but: ${file:-none}"
	grep -F "  $file" SHA256SUMS | sha256sum --check --strict --quiet || die "$file is not what SHA256SUMS says"
	set -- "$@" "./$file"
done
[ $# = 0 ] || dpkg --install "$@"
for package in $(wanted); do has "$package" || die "$package is not whole after its installation"; done
