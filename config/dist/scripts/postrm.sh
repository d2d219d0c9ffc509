#!/bin/sh
# After a removal; with dpkg's purge, or rpm's erase, everything that Airlock
# has made goes. rpm has no purge, so it keeps what dpkg's remove keeps.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case "$1" in
purge)
	rm -rf /var/lib/airlock /var/lib/airlock-heads /etc/airlock /run/airlock
	if getent passwd airlock-agent >/dev/null; then
		userdel airlock-agent || true
	fi
	;;
esac
