#!/usr/bin/env bash
# Makes deb and rpm packages of what `make build` has put into bin/, with a list
# of what is in them (CycloneDX) and their checksums, in dist/. The same commit
# makes the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
export ARCH VERSION PLUGIN SUMMARY DEB_RECOMMENDS SOURCE_DATE_EPOCH
ARCH=$(go env GOARCH)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
VERSION=${PACKAGE_VERSION:?set PACKAGE_VERSION, for example 1.2.3}
rm -rf dist
mkdir -p dist/extra/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
bin/airlock completion bash >dist/extra/bash-completion/completions/airlock
bin/airlock completion zsh >dist/extra/zsh/vendor-completions/_airlock
bin/airlock completion fish >dist/extra/fish/vendor_completions.d/airlock.fish
if bin/airlock man --help >/dev/null 2>&1; then
	bin/airlock man dist/extra/man/man1
	gzip -9n dist/extra/man/man1/*.1
fi
find dist/extra -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

pack() { # config
	for kind in deb rpm; do nfpm package -f "$1" -p "$kind" -t dist/ >/dev/null; done
}
pack config/dist/nfpm.yaml
for file in bin/plugins/airlock-*; do
	PLUGIN=${file##*/airlock-}
	DEB_RECOMMENDS=airlock
	case "$PLUGIN" in
	isolation-docker) DEB_RECOMMENDS="docker.io | docker-ce | moby-engine" ;;
	isolation-qemu-kvm) DEB_RECOMMENDS="qemu-system-x86" ;;
	esac
	SUMMARY="Airlock plugin: $(tr - ' ' <<<"${PLUGIN%%-*}") ${PLUGIN#*-}."
	pack config/dist/nfpm-plugin.yaml
done
rm -rf dist/extra
cyclonedx-gomod mod -json -licenses=false -noserial -output "dist/airlock-$VERSION.cdx.json" . 2>/dev/null
(cd dist && sha256sum -- * >SHA256SUMS)
ls -l dist
