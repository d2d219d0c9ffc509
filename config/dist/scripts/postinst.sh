#!/bin/sh
# After an install or an upgrade, by dpkg (configure, triggered) and rpm (1, 2).
# Cells live under airlock-cells.service and are never restarted here.
set -e

if ! getent passwd airlock-agent >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin \
		--comment "Airlock missions" airlock-agent
fi
[ -d /run/systemd/system ] || exit 0
case "$1" in
configure | 1 | 2)
	systemctl daemon-reload
	if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
		systemctl enable --quiet airlock-cells.service airlock.service
		systemctl start airlock-cells.service
	else # missions go on in their cells while the host restarts
		systemctl try-restart airlock.service
	fi
	;;
triggered) # a package with a plugin came or went
	systemctl try-restart airlock.service
	;;
esac
