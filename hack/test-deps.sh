#!/usr/bin/env bash
# Installs what the tests need from the system and is not there yet: a C
# compiler, which Go's race detector links with.
set -euo pipefail
command -v gcc >/dev/null && exit 0
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
if ! command -v apt-get >/dev/null; then
	echo "the race detector needs gcc: install it, then run make test again" >&2
	exit 1
fi
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
