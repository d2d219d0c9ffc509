# shellcheck shell=sh
# What the steps of setup.aiwg.yaml share. Nothing here prints a token or a key.
config=/etc/airlock/airlock.hcl
token=/etc/airlock/operator.token
say() { printf '%s\n' "$*"; }
die() {
	printf '%s\n' "$*" >&2
	exit 1
}
# has PACKAGE: installed, and none of its files changed or gone.
has() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || return 1
	[ -z "$(dpkg --verify "$1" | grep -v ' c ')" ]
}
# wanted packages, for the isolation that was chosen.
wanted() { say "airlock airlock-isolation-$ISOLATION airlock-runtime-command"; }
need() { eval "[ -n \"\${$1:-}\" ]" || die "$1 is not set: it is a parameter of setup.aiwg.yaml"; }
# is_url TEXT: a base URL, and nothing that the shell or HCL would take apart.
is_url() { printf '%s' "$1" | grep -Eq '^https?://[A-Za-z0-9.:_/-]+$'; }
# edited FILE MADE UID: what airlock init wrote in the directory MADE, with what
# was chosen, for /etc/airlock.
edited() {
	case $ISOLATION in
	docker) block="isolation \"docker\" \"host\" {\n  config {\n    image = \"${IMAGE:?docker needs IMAGE, the name of an image}\"\n  }\n}" ;;
	qemu-kvm) block="isolation \"qemu-kvm\" \"host\" {\n  config {\n    image = \"${IMAGE:?qemu-kvm needs IMAGE, a directory of airlock image build}\"\n  }\n}" ;;
	host-supervisor) block="" ;;
	*) die "ISOLATION is $ISOLATION, not host-supervisor, docker or qemu-kvm" ;;
	esac
	case $NETWORK in none | open) ;; *) die "NETWORK is $NETWORK, not none or open" ;; esac
	[ "$NETWORK:$ISOLATION" != open:qemu-kvm ] || die "a VM has no network card: for qemu-kvm NETWORK is none, and single hosts are opened in the configuration"
	case "${WORKSPACE:-}${IMAGE:-}" in *[\"\$%\\\&]*) die "WORKSPACE and IMAGE may not hold quotes, dollars, percents, ampersands or backslashes" ;; esac
	awk -v block="$block" -v kind="$ISOLATION" -v network="$NETWORK" -v work="${WORKSPACE:-}" -v uid="$3" -v made="$2" '
		{ gsub(made, "/etc/airlock") }
		block != "" && /^isolation "host-supervisor"/ { print block; skip = 1 }
		skip { if (/^}/) skip = 0; next }
		/isolation = isolation.host-supervisor.host/ { sub(/host-supervisor/, kind) }
		/^  network {/ && work != "" { print "  workspace {\n    source = \"" work "\"\n    mode   = \"copy\"\n  }\n" }
		/mode = "none"/ { sub(/"none".*/, "\"" network "\"") }
		/uids/ { sub(/\[[0-9]*\]/, "[" uid "]") }
		{ print }' "$1"
}
