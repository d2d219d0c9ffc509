#!/bin/sh
# Before a removal (dpkg: remove, rpm: 0). An upgrade stops nothing.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
if systemctl is-active --quiet airlock.service; then
	# Missions end, and the orchestrator is told that the host is gone.
	airlock drain --deadline 30s || echo "airlock: missions that still run are ended with their cells" >&2
fi
systemctl disable --quiet --now airlock.service || true
systemctl disable --quiet --now airlock-cells.service || true
