#!/bin/sh
# Looks, and changes nothing: what the machine has, and what of Airlock is there.
# A line that begins with "problem:" is something that the later steps mend, or
# that stands in their way.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
need ISOLATION
say "machine: $(uname -srm)"
[ -d /run/systemd/system ] && say "systemd: yes" || say "problem: the machine was not booted with systemd"
case $(stat -f -c %T /sys/fs/cgroup 2>/dev/null) in
cgroup2fs) say "cgroup: v2" ;;
*) say "cgroup: v1 or none; limits are enforced where v1 has the controllers" ;;
esac
case $ISOLATION in
docker) docker version >/dev/null 2>&1 && say "docker: answers" || say "problem: no Docker engine answers" ;;
qemu-kvm) command -v qemu-system-x86_64 >/dev/null && say "qemu: $(command -v qemu-system-x86_64)" || say "problem: QEMU is not installed" ;;
esac
[ "$ISOLATION" != qemu-kvm ] || { [ -w /dev/kvm ] && say "kvm: /dev/kvm is there (the driver proves whether it works)" || say "kvm: none; VMs are emulated, which is slow"; }
for package in $(wanted); do
	state=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null) || state="not installed"
	say "package $package: $state"
	case $state in installed*) has "$package" || say "problem: files of $package were changed or are gone" ;; esac
done
if [ -e "$config" ]; then
	say "configuration: $config, kept as it is"
	if command -v airlock >/dev/null; then
		airlock validate "$config" >/dev/null 2>&1 || say "problem: the configuration is not valid (airlock validate $config says why)"
	fi
	[ -e "$token" ] || say "problem: the operator's token is missing"
fi
[ ! -e "$token" ] || [ "$(stat -c %a "$token")" = 600 ] || [ "$(stat -c %a "$token")" = 400 ] || say "problem: $token can be read by others"
[ ! -e /var/lib/airlock ] || say "state: /var/lib/airlock, kept as it is"
for unit in airlock.service airlock-cells.service; do
	if [ -e /usr/lib/systemd/system/$unit ]; then say "$unit: $(systemctl is-enabled $unit 2>/dev/null || true), $(systemctl is-active $unit 2>/dev/null || true)"; fi
done
[ ! -e /etc/agentic-sandbox ] && [ ! -e /var/lib/agentic-sandbox ] || say "agentic-sandbox: found; docs/migrating.md says how its missions come over"
[ -z "${ORCHESTRATOR:-}" ] || say "orchestrator: $ORCHESTRATOR"
