#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one after another.
set -euo pipefail
cd "$(dirname "$0")/.."
for file in $(grep -rl --include='*_test.go' '^func Fuzz' .); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -c6-); do
		echo "== $target in $(dirname "$file")"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$(dirname "$file")"
	done
done
