#!/usr/bin/env bash
# Installs what the tests need from the system and is not there yet. Each need
# is one script in test-deps.d: it looks first, and installs only what is
# missing.
set -euo pipefail
cd "$(dirname "$0")"
export sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
# install PACKAGE…: for the scripts.
install() {
	if ! command -v apt-get >/dev/null; then
		echo "the tests need $*: install it, then run make test again" >&2
		return 1
	fi
	[ -n "${updated:-}" ] || { $sudo apt-get update -qq; updated=1; }
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		-o DPkg::Lock::Timeout=300 "$@" >/dev/null
}
for need in test-deps.d/*.sh; do
	# shellcheck source=/dev/null
	. "$need"
done
