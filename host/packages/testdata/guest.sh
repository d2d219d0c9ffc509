#!/bin/sh
# What an operator does with the packages, in a VM that was booted with systemd.
# Every step says "ci: ok NAME" on the serial port; the first thing that is not
# as it must be says why, and ends it.
set -eu
cd "$(dirname "$0")"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive
name=""
now() { cut -d. -f1 /proc/uptime; }
ok() { [ -z "$name" ] || echo "ci: ok $name ($(($(now) - began)) s)"; }
step() {
	ok
	name=$1 began=$(now)
}
fail() {
	echo "ci: FAIL $name: $*"
	systemctl status --no-pager --lines=0 airlock.service airlock-cells.service || true
	journalctl --no-pager -n 60 -o cat -u airlock.service -u airlock-cells.service || true
	exit 1
}
trap 'code=$?; [ $code = 0 ] || echo "ci: FAIL $name: exit code $code"' EXIT
# eventually WHAT COMMAND…: it comes true while a slow machine gets there.
eventually() {
	what=$1
	shift
	end=$(($(now) + 240))
	until "$@"; do
		[ "$(now)" -lt $end ] || fail "it did not come to this: $what"
		sleep 0.2
	done
}
flat() { tr -d ' \n'; }
# Asked over REST, because a start of the program takes most of a second here.
state() { fetch "/api/v1/missions/$1" "$token" 2>/dev/null | flat | sed -n 's/.*"state":"\([a-z-]*\)".*/\1/p'; }
is() { [ "$(state "$1")" = "$2" ]; }
main_pid() { systemctl show -P MainPID airlock.service; }
installed() { dpkg-query -W -f '${Version} ${Status}' "$1" 2>/dev/null; }
# fetch PATH [TOKEN]: over the REST listener, as a browser does.
fetch() { ./busybox wget -q -O - ${2:+--header "Authorization: Bearer $2"} "http://127.0.0.1:8122$1"; }
# ready: the host takes missions and every plugin is well.
ready() {
	answer=$(fetch /readyz 2>/dev/null) || return 1
	case $(printf %s "$answer" | flat) in *'":"'[!\"]*) return 1 ;; *'"ready":true'*) ;; *) return 1 ;; esac
}
alive() { [ "$(cat /srv/work/"$1".alive)" != "$2" ]; }
# grows ID: its process goes on.
grows() {
	before=$(cat /srv/work/"$1".alive)
	eventually "mission $1 goes on" alive "$1" "$before"
}
other_pid() { p=$(main_pid) && [ "$p" != 0 ] && [ "$p" != "$1" ]; }
# counts up, once, until it is told to end.
counting() {
	cat <<-EOF
		echo begun >>$1.begun; n=0
		until [ -e $1.go ]; do n=\$((n+1)); echo \$n >$1.alive.new; mv $1.alive.new $1.alive; sleep 0.2; done
		echo ended well
	EOF
}
once() { [ "$(wc -l </srv/work/"$1".begun)" = 1 ] || fail "mission $1 was begun more than once"; }
# groups of cells that hold a process.
busy() { find /sys/fs/cgroup/system.slice/airlock-cells.service -name cgroup.procs ! -path '*/anchor/*' -exec cat {} + 2>/dev/null; }
idle() { [ -z "$(busy)" ]; }

step boot
began=0
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || fail "this is no cgroup v2"
[ "$(cat /proc/1/comm)" = systemd ] || fail "this is no systemd"
# The machine is emulated, and on one that may be busy.
mkdir -p /etc/systemd/system/airlock.service.d
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nTimeoutStartSec=20min\nWatchdogSec=20min\n' >/etc/systemd/system/airlock.service.d/emulated.conf

step install
dpkg -i old/*.deb >install.log 2>&1 || fail "$(cat install.log)"
[ "$(installed airlock)" = "$OLD install ok installed" ] || fail "$(installed airlock)"
id airlock-agent >/dev/null || fail "there is no system user airlock-agent"
for file in /usr/share/man/man1/airlock.1.gz /usr/share/man/man1/airlock-mission-dispatch.1.gz \
	/usr/share/bash-completion/completions/airlock /usr/share/zsh/vendor-completions/_airlock \
	/usr/share/fish/vendor_completions.d/airlock.fish /usr/share/doc/airlock/docs/operator-guide.md; do
	[ -s "$file" ] || fail "$file is missing"
done
for unit in airlock.service airlock-cells.service; do
	[ "$(systemctl is-enabled $unit)" = enabled ] || fail "$unit is not enabled"
done
systemctl is-active --quiet airlock-cells.service || fail "airlock-cells.service does not run"
! systemctl is-active --quiet airlock.service || fail "the host runs without a configuration"

step init
airlock init /etc/airlock/airlock.hcl >init.log
[ "$(stat -c %a /etc/airlock/operator.token)" = 600 ] || fail "the token's mode is $(stat -c %a /etc/airlock/operator.token)"
mkdir -m 777 /srv/work
sed -i 's|^  network {|  workspace {\n    source = "/srv/work"\n    mode   = "read-write"\n  }\n\n  network {|' /etc/airlock/airlock.hcl
# Its plugins are asked too, which a machine that is busy elsewhere may not let answer in time.
valid() { airlock validate /etc/airlock/airlock.hcl >valid.log 2>&1 || ! grep -q "no handshake within" valid.log; }
eventually "the plugins answer" valid
grep -q "is valid: 1 agent" valid.log || fail "the configuration is not valid: $(cat valid.log)"

step start
systemctl start airlock.service || fail "it does not start"
eventually "the host is ready" ready
token=$(cat /etc/airlock/operator.token)
airlock status | grep -q "ready  *yes" || fail "$(airlock status)"

step mission
airlock mission dispatch --id first "$(counting first)" >/dev/null
eventually "the mission runs" is first running
eventually "the mission counts" test -s /srv/work/first.alive
grep -rqx --include=memory.max 2147483648 /sys/fs/cgroup/system.slice/airlock-cells.service || fail "no cell below airlock-cells.service has its memory limit: $(find /sys/fs/cgroup/system.slice/airlock-cells.service -name memory.max -exec grep -H . {} +)"
grep -rqx --include=pids.max 512 /sys/fs/cgroup/system.slice/airlock-cells.service || fail "no cell has its limit of processes"

step control-room
fetch / >page.html
grep -q "Airlock Control Room" page.html || fail "the Control Room's page is not there"
for file in $(sed -n 's/.*\(src\|href\)="\(\/ui\/[^"]*\)".*/\2/p' page.html); do
	fetch "$file" >asset || fail "the Control Room's $file is not there"
	[ -s asset ] || fail "the Control Room's $file is empty"
done
fetch /api/v1/missions "$token" | flat | grep -q '"mission_id":"first".*"state":"running"' || fail "the API does not show the mission: $(fetch /api/v1/missions "$token")"
! fetch /api/v1/missions 2>/dev/null || fail "the API answers without a token"
airlock ui 2>/dev/null | grep -q '127.0.0.1:8122/#code=' || fail "airlock ui gives no link"

step kill-9
grows first
old_pid=$(main_pid)
kill -9 "$old_pid"
eventually "systemd starts the host again" other_pid "$old_pid"
eventually "the host is ready" ready
eventually "the mission runs" is first running
grows first

step stop
airlock control stop first >stop.log || fail "$(cat stop.log)"
eventually "the mission is aborted" is first aborted
eventually "nothing of the mission is left" idle
once first

step upgrade
airlock mission dispatch --id second "$(counting second)" >/dev/null
eventually "the mission runs" is second running
eventually "the mission counts" test -s /srv/work/second.alive
old_pid=$(main_pid)
dpkg -i new/*.deb >upgrade.log 2>&1 || fail "$(cat upgrade.log)"
[ "$(installed airlock)" = "$NEW install ok installed" ] || fail "$(installed airlock)"
eventually "the new host runs" other_pid "$old_pid"
eventually "the host is ready" ready
case "$(readlink "/proc/$(main_pid)/exe")" in *deleted*) fail "the old program still runs" ;; esac
airlock version | grep -q "$NEW" || fail "$(airlock version)"
eventually "the mission runs on" is second running
grows second
once second

step downgrade-refused
systemctl stop airlock.service
grows second # cells outlive the host
printf '\0\0\0\143' | dd of=/var/lib/airlock/missions.db bs=1 seek=60 conv=notrunc status=none
! dpkg -i old/airlock_*.deb >downgrade.log 2>&1 || fail "an older version was installed over a newer store"
grep -q "a newer airlock has written it" downgrade.log || fail "$(cat downgrade.log)"
[ "$(installed airlock)" = "$NEW install ok installed" ] || fail "$(installed airlock)"
! airlock serve --config /etc/airlock/airlock.hcl >serve.log 2>&1 || fail "a host started on a newer store"
grep -q "it has version 99, this program knows up to" serve.log || fail "$(cat serve.log)"
printf '\0\0\0\'"$SCHEMA" | dd of=/var/lib/airlock/missions.db bs=1 seek=60 conv=notrunc status=none
systemctl start airlock.service || fail "it does not start again"
eventually "the mission runs on" is second running
grows second
touch /srv/work/second.go
eventually "the mission is done" is second done
once second

step remove
airlock mission dispatch --id third "sleep 8; echo ended >third.ended" >/dev/null
eventually "the mission runs" is third running
dpkg -r $(dpkg-query -W -f '${Package}\n' 'airlock*') >remove.log 2>&1 || fail "$(cat remove.log)"
[ -e /srv/work/third.ended ] || fail "a mission that would have ended was not waited for"
for unit in airlock.service airlock-cells.service; do
	! systemctl is-active --quiet $unit || fail "$unit still runs"
done
! grep -l '^airlock' /proc/[0-9]*/comm 2>/dev/null || fail "something of Airlock still runs"
[ -s /var/lib/airlock/missions.db ] && [ -s /etc/airlock/airlock.hcl ] || fail "a removal took the state"
[ ! -e /usr/bin/airlock ] || fail "the program is still there"

step purge
dpkg -P $(dpkg-query -W -f '${Package}\n' 'airlock*') >purge.log 2>&1 || fail "$(cat purge.log)"
for left in /var/lib/airlock /var/lib/airlock-heads /etc/airlock /etc/default/airlock /run/airlock /usr/lib/airlock /usr/share/doc/airlock \
	/usr/lib/systemd/system/airlock.service /etc/systemd/system/multi-user.target.wants/airlock.service /sys/fs/cgroup/system.slice/airlock-cells.service; do
	! [ -e "$left" ] || fail "$left is left: $(find "$left")"
done
! id airlock-agent 2>/dev/null || fail "the system user is left"

# The steps of setup.aiwg.yaml, as an agentic installer carries them out: in
# their order, each with the parameters that it declares and nothing else, and
# with yes for an answer. "plan" has them one a line: id, script, parameters,
# what verifies it.
export PACKAGES=/srv/ci/new ISOLATION=host-supervisor IMAGE= NETWORK=none WORKSPACE=/srv/work ORCHESTRATOR=http://127.0.0.1:7337 OPERATOR=root
setup() { # ID SCRIPT PARAMETERS VERIFY
	set -- "$1" "$2" "$(for p in $(echo "$3" | tr , ' '); do eval "echo $p=\$$p"; done)" "$4"
	# shellcheck disable=SC2086 # one word a parameter
	env -i PATH="$PATH" HOME=/root $3 sh "$2" >"setup-$1.log" 2>&1 || fail "$2: $(cat "setup-$1.log")"
	[ "$4" = - ] || sh -c "$4" >verify.log 2>&1 || fail "$4: $(cat verify.log)"
}
changed() { find /etc /usr/bin /usr/lib/airlock /usr/lib/systemd /var/lib/airlock /var/lib/dpkg -newer mark ! -type d 2>/dev/null; }
carry_out() {
	sleep 1.1 # times of files are kept coarsely
	touch mark
	while IFS='|' read -r id script params verify; do
		setup "$id" "$script" "$params" "$verify" </dev/null
		case $id in audit | explain) [ -z "$(changed)" ] || fail "$id, which only looks, has changed $(changed)" ;; esac
	done <plan
}

step setup-on-a-clean-root
carry_out
grep -q "install package airlock-isolation-host-supervisor" setup-explain.log || fail "$(cat setup-explain.log)"
grep -q "^pass:" setup-verify.log || fail "$(cat setup-verify.log)"
[ "$(stat -c '%a %u' /etc/airlock/airlock.hcl /etc/airlock/operator.token | tr '\n' ' ')" = "644 0 600 0 " ] || fail "$(ls -l /etc/airlock)"
grep -q '^AIWG_SERVE_ENDPOINT=http://127.0.0.1:7337$' /etc/default/airlock || fail "the orchestrator is not set"

step setup-of-a-broken-install
echo "# a line of the operator's" >>/etc/airlock/airlock.hcl
sums() { sha256sum /etc/airlock/airlock.hcl /etc/airlock/operator.token /etc/airlock/host.key /etc/default/airlock; }
kept=$(sums)
chmod 644 /etc/airlock/operator.token
echo damaged >/usr/lib/airlock/plugins/airlock-runtime-command
rm /usr/bin/airlock-cell
# It cannot start again with such a token, and goes on trying, here not every second.
printf '[Service]\nRestartSec=20\n' >/etc/systemd/system/airlock.service.d/slowly.conf
systemctl daemon-reload
systemctl kill --signal=KILL airlock.service
carry_out
for word in "files of airlock were changed" "files of airlock-runtime-command were changed" "can be read by others"; do
	grep -q "problem: .*$word" setup-audit.log || fail "it does not find that $word: $(cat setup-audit.log)"
done
grep -q "keep package airlock-isolation-host-supervisor" setup-explain.log || fail "$(cat setup-explain.log)"
[ "$(sums)" = "$kept" ] || fail "it has changed what was there: $kept, $(sums)"
[ "$(stat -c %a /etc/airlock/operator.token)" = 600 ] || fail "the token's mode is not mended"
setup diagnose setup/diagnose.sh "" -
! grep -qF "$(cat /etc/airlock/operator.token)" setup-*.log || fail "a step printed the token"
ok
echo "ci: done"
