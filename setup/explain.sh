#!/bin/sh
# Says what the next steps will do on this machine, in order. Changes nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
need PACKAGES
need ISOLATION
need NETWORK
say "Airlock runs missions of AI agents in cells, decides their tool calls, and keeps a journal."
say "The plan:"
for package in $(wanted); do
	if has "$package"; then say "- keep package $package"; else say "- install package $package from $PACKAGES, after its checksum"; fi
done
if [ -e "$config" ]; then
	say "- keep $config, its keys and tokens; mend the mode of the token only"
else
	say "- write $config and an operator's token beside it (mode 0600)"
	say "- one agent: isolation $ISOLATION${IMAGE:+ ($IMAGE)}, network $NETWORK, workspace ${WORKSPACE:-empty}"
	say "- orders at the operator socket are taken from the user ${OPERATOR:-root}"
fi
[ -z "${ORCHESTRATOR:-}" ] || say "- register with the orchestrator at $ORCHESTRATOR (in /etc/default/airlock)"
say "- enable and start airlock-cells.service and airlock.service; listeners on 127.0.0.1:8122 and 127.0.0.1:8121 only"
say "- run one mission to its end, and verify its journal"
[ "$NETWORK" = none ] || say "Missions will reach everything that this machine reaches."
[ "$ISOLATION" != host-supervisor ] || say "A confined process shares the kernel with this machine; docs/security.md says what that stops."
