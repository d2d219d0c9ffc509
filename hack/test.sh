#!/usr/bin/env bash
# Runs every test of the module with the race detector and counts skips: a
# skipped test is a failure, so that nothing is left out silently.
set -euo pipefail
cd "$(dirname "$0")/.."
json=$(mktemp)
trap 'rm -f "$json"' EXIT
export AIRLOCK_REQUIRE="${AIRLOCK_REQUIRE:-qemu,docker,host,claude}" AIRLOCK_BIN="$PWD/bin" AIRLOCK_RACE=1
export AIRLOCK_CLAUDE="${AIRLOCK_CLAUDE:-$PWD/bin/tools/claude/claude}"
start=$(date +%s)
status=0
CGO_ENABLED=1 gotestsum --format pkgname --format-hide-empty-pkg --jsonfile "$json" -- \
	-race -shuffle=on -timeout 35m ./... || status=$?
skips=$(grep -c '"Action":"skip","Package":"[^"]*","Test"' "$json" || true)
echo "suite: all packages with -race, $(( ($(date +%s) - start + 59) / 60 )) min; skipped tests: $skips"
if [ "$skips" -gt 0 ]; then
	grep '"Action":"skip","Package":"[^"]*","Test"' "$json" >&2
	exit 1
fi
exit "$status"
