#!/bin/sh
# Writes a configuration where there is none. One that is there is kept, with
# its keys and tokens; only a token that is missing or readable by others is
# mended.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
umask 077
if [ ! -e "$config" ]; then
	need ISOLATION
	need NETWORK
	uid=$(id -u "${OPERATOR:-root}") || die "there is no user ${OPERATOR:-root}"
	new=$(mktemp -d /etc/airlock/.new.XXXXXX)
	trap 'rm -rf "$new"' EXIT
	chmod 755 "$new"
	airlock init "$new/airlock.hcl" >/dev/null
	[ -e "$token" ] || mv "$new/operator.token" "$token"
	edited "$new/airlock.hcl" "$new" "$uid" >"$new/edited.hcl"
	airlock validate "$new/edited.hcl" || die "the configuration would not be valid; nothing was written"
	chmod 644 "$new/edited.hcl"
	mv "$new/edited.hcl" "$config"
	say "written: $config"
else
	say "kept: $config"
fi
if [ ! -e "$token" ]; then
	od -An -vtx1 -N32 /dev/urandom | tr -d ' \n' >"$token"
	say "written: $token"
fi
case $(stat -c %a "$token") in 600 | 400) ;; *)
	chmod 600 "$token"
	say "mended: $token could be read by others; if somebody may have, put a new token in and run airlock reload"
	;;
esac
if [ -n "${ORCHESTRATOR:-}" ] && ! grep -q '^AIWG_SERVE_ENDPOINT=' /etc/default/airlock; then
	is_url "$ORCHESTRATOR" || die "ORCHESTRATOR is not a base URL"
	printf 'AIWG_SERVE_ENDPOINT=%s\n' "$ORCHESTRATOR" >>/etc/default/airlock
	say "written: AIWG_SERVE_ENDPOINT in /etc/default/airlock"
fi
