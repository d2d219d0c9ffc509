#!/bin/sh
# Before an install or an upgrade. A store that a newer program has written is
# not for this one: then nothing is installed, and what runs goes on.
set -e

for config in /etc/airlock/*.hcl; do
	[ -f "$config" ] || continue
	dir=$(sed -n 's/^[[:space:]]*data_dir[[:space:]]*=[[:space:]]*"\([^"$%]*\)".*/\1/p' "$config" | head -n 1)
	[ -z "$dir" ] || data=$dir
done
store=${data:-/var/lib/airlock}/missions.db
[ -f "$store" ] || exit 0
# SQLite keeps the version in four bytes of the file's header.
# shellcheck disable=SC2046 # four numbers
set -- $(od -An -tu1 -j60 -N4 "$store")
[ $# = 4 ] || exit 0
version=$((($1 << 24) + ($2 << 16) + ($3 << 8) + $4))
if [ "$version" -gt @SCHEMA@ ]; then
	cat >&2 <<-EOF
		airlock: the store $store has version $version, and airlock @VERSION@ knows
		up to @SCHEMA@: a newer airlock has written it. Nothing is installed. Stay with the
		newer version; or, to go back and lose what was done since the upgrade, stop
		airlock.service, put the copy that was made before it ($store.v*) in
		the store's place, and install again.
	EOF
	exit 1
fi
