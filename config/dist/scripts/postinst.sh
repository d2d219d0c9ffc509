#!/bin/sh
# After an install or an upgrade, by dpkg (configure, triggered) and rpm (1, 2).
# Cells live under airlock-cells.service and are never restarted here.
set -e

if ! getent passwd airlock-agent >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin \
		--comment "Airlock missions" airlock-agent
fi
[ -d /run/systemd/system ] || exit 0
# A host that does not start, for its configuration say, is no reason for a
# package to be broken too: the repair may be the next thing that is installed.
restart() {
	systemctl try-restart airlock.service || echo "airlock: the host did not start again: airlock validate /etc/airlock/airlock.hcl and journalctl -u airlock say why" >&2
}
case "$1" in
configure | 1 | 2)
	systemctl daemon-reload
	if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
		systemctl enable --quiet airlock-cells.service airlock.service
		systemctl start airlock-cells.service
	else # missions go on in their cells while the host restarts
		restart
	fi
	;;
triggered) # a package with a plugin came or went
	restart
	;;
esac
