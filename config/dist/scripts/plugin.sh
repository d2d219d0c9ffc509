#!/bin/sh
# After a plugin came or went, by rpm; dpkg does it by a trigger of the package
# airlock. The host restarts, missions go on in their cells.
[ -d /run/systemd/system ] || exit 0
systemctl --no-block try-restart airlock.service || true
