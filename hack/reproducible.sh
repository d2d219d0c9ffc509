#!/usr/bin/env bash
# Builds the last commit twice, in two directories and with a build cache of its
# own each time, packs both, and compares every byte.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/bin/tools
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
commit=$(git rev-parse HEAD) # both of the same one, whatever is committed meanwhile
for n in 1 2; do
	git clone -q . "$work/$n"
	git -C "$work/$n" checkout -q --detach "$commit"
	mkdir -p "$work/$n/bin"
	ln -s "$tools" "$work/$n/bin/tools"
	echo "build $n"
	(cd "$work/$n" && GOCACHE="$work/cache$n" make -s packages PACKAGE_VERSION=0.0.1 VERSION=0.0.1 >/dev/null)
	rm -rf "$work/cache$n"
done
diff "$work/1/dist/SHA256SUMS" "$work/2/dist/SHA256SUMS"
echo "the same bytes: $(wc -l <"$work/1/dist/SHA256SUMS") files"
