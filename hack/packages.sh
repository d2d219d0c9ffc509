#!/usr/bin/env bash
# Makes deb and rpm packages of what `make build` has put into bin/, with a list
# of what is in them (CycloneDX) and their checksums. The same commit makes the
# same bytes: everything is laid out anew, with the commit's time.
#
#   PACKAGE_VERSION  of all packages, for example 1.2.3
#   BIN, OUT         where the programs are (bin), where the packages go (dist)
#   KINDS            "deb rpm"
#   PLUGINS          the plugins to pack (every one in BIN/plugins)
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export ARCH VERSION PLUGIN SUMMARY DEB_RECOMMENDS SOURCE_DATE_EPOCH
ARCH=$(go env GOARCH)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
VERSION=${PACKAGE_VERSION:?set PACKAGE_VERSION, for example 1.2.3}
BIN=${BIN:-bin} OUT=${OUT:-dist} KINDS=${KINDS:-deb rpm}
PLUGINS=${PLUGINS:-$(cd "$BIN/plugins" && printf '%s\n' airlock-* | sed 's/^airlock-//')}
rm -rf "$OUT"
mkdir -p "$OUT"
export CGO_ENABLED=0 TZ=UTC LC_ALL=C # the manual pages carry the month
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# The manual pages and completions are the program's own words.
mkdir "$stage"/{bin,plugins,man,completion,scripts,dist}
"$BIN/airlock" man "$stage/man"
gzip -9n "$stage"/man/*.1
"$BIN/airlock" completion bash >"$stage/completion/airlock"
"$BIN/airlock" completion zsh >"$stage/completion/_airlock"
"$BIN/airlock" completion fish >"$stage/completion/airlock.fish"
install -m 755 "$BIN/airlock" "$BIN/airlock-cell" "$BIN/airlock-verify" "$stage/bin/"
for plugin in $PLUGINS; do install -m 755 "$BIN/plugins/airlock-$plugin" "$stage/plugins/"; done
cp -R docs "$stage/docs"
cp LICENSE CHANGELOG.md "$stage/"
cp config/dist/airlock.hcl config/dist/*.service config/dist/default "$stage/dist/"
# A package knows the newest store that its program reads, and is not installed
# over a newer one.
schema=$("$BIN/airlock" version --json | sed -n 's/.*"store_schema": *"\{0,1\}\([0-9][0-9]*\).*/\1/p')
[ -n "$schema" ] || { echo "airlock version --json names no store_schema" >&2; exit 1; }
for script in config/dist/scripts/*.sh; do
	sed -e "s|@SCHEMA@|$schema|g" -e "s|@VERSION@|$VERSION|g" "$script" >"$stage/scripts/${script##*/}"
done
find "$stage" -type d -exec chmod 755 {} + -o -path "$stage/bin/*" -o -path "$stage/plugins/*" -o -type f -exec chmod 644 {} +
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

pack() { # config
	sed "s|@STAGE@|$stage|g" "$1" >"$stage/nfpm.yaml"
	for kind in $KINDS; do nfpm package -f "$stage/nfpm.yaml" -p "$kind" -t "$OUT/" >/dev/null; done
}
pack config/dist/nfpm.yaml
for PLUGIN in $PLUGINS; do
	DEB_RECOMMENDS=airlock
	case "$PLUGIN" in
	isolation-docker) DEB_RECOMMENDS="docker.io | docker-ce | moby-engine" ;;
	isolation-qemu-kvm) DEB_RECOMMENDS="qemu-system-x86" ;;
	esac
	SUMMARY="Airlock plugin: $(tr - ' ' <<<"${PLUGIN%%-*}") ${PLUGIN#*-}."
	pack config/dist/nfpm-plugin.yaml
done
go run ./hack/sbom "$VERSION" "$stage"/bin/* "$stage"/plugins/* >"$OUT/airlock-$VERSION.cdx.json"
(cd "$OUT" && sha256sum -- * >"$stage/SHA256SUMS" && cp "$stage/SHA256SUMS" .)
ls -l "$OUT"
