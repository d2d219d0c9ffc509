#!/bin/sh
# Starts the host and proves it: ready, every plugin well, a mission from dispatch
# to its end, its journal verified.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
systemctl enable --quiet airlock-cells.service airlock.service
systemctl start airlock-cells.service
systemctl reset-failed airlock.service 2>/dev/null || true # it may have failed too often to be started
systemctl restart airlock.service                          # missions that run go on in their cells
airlock status
if ! id=$(airlock mission dispatch 'echo airlock works' --wait --timeout 5m); then
	airlock mission show "$id"
	die "the mission did not end as done"
fi
airlock mission logs "$id" | grep -q 'airlock works' || die "the mission's output is missing"
export=$(mktemp)
trap 'rm -f "$export"' EXIT
airlock journal export "$id" -o "$export"
airlock journal verify "$export"
if [ -n "${ORCHESTRATOR:-}" ]; then
	airlock status --json | tr -d ' \n' | grep -q '"connected":true' || say "warning: the orchestrator at $ORCHESTRATOR does not answer yet; the host goes on asking"
fi
say "pass: a mission ran from dispatch to its end, and its journal verifies"
