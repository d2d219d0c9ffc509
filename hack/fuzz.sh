#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one after another. At
# the end of each comes one JSON line; an input that fails is kept by go test in
# the package's testdata/fuzz and is a test from then on. What is learned on the
# way is kept in the build cache (go env GOCACHE), for the next run.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
for file in $(grep -rl --include='*_test.go' '^func Fuzz' .); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -c6-); do
		package=$(dirname "$file")
		echo "== $target in $package"
		result=pass
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package" || { result=fail; failed=1; }
		printf '{"target":"%s","package":"%s","fuzztime":"%s","result":"%s"}\n' "$target" "$package" "$1" "$result"
	done
done
exit "$failed"
