# shellcheck shell=bash
# The claude-code runtime is tested with the real Claude Code CLI, at one pinned
# version. Its licence forbids passing it on, so it is no part of this
# repository: npm fetches the package of the native binary (402 MB) from the
# registry that npm is set up with, runs none of its scripts, and what came is
# compared with the digests below. The binary is kept in the cache directory;
# bin/tools/claude/claude is a hard link to it or a copy. AIRLOCK_CLAUDE names
# another binary for the tests; then nothing is fetched.
claude_package=@anthropic-ai/claude-code-linux-x64@2.1.332
claude_tarball=7f8256873c18bad2481d2702eff75838f5fab36f2db7b6400e1b0e8bccf0387ab97c53c4b94782861d8d31f8a74a0d06ad472463169e79b0b88740ea88accb73 # sha512
claude_binary=a2df1f41bb00250992926420d0063f89b127cb81abdd284dbefb80c50ff1d026 # sha256
claude_cache="${AIRLOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/airlock}/claude/2.1.332"
claude_link="$PWD/../bin/tools/claude/claude"

claude_good() { [ -x "$1" ] && echo "$claude_binary  $1" | sha256sum --check --status; }

claude_fetch() (
	set -e
	command -v npm >/dev/null || install npm
	mkdir -p "$claude_cache"
	work=$(mktemp -d "$claude_cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# In an empty directory, so that no package.json or .npmrc of a project counts.
	(cd "$work" && npm pack "$claude_package" --ignore-scripts --loglevel=error >/dev/null)
	tarball=$(echo "$work"/*.tgz)
	echo "$claude_tarball  $tarball" | sha512sum --check --quiet
	tar -xzf "$tarball" -C "$work" --no-same-owner package/claude
	chmod 755 "$work/package/claude"
	claude_good "$work/package/claude"
	mv -f "$work/package/claude" "$claude_cache/claude"
)

if [ -z "${AIRLOCK_CLAUDE:-}" ] && ! claude_good "$claude_link"; then
	if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
		echo "the tests need Claude Code 2.1.332, whose pinned binary is for Linux on x86-64: name one for this machine in AIRLOCK_CLAUDE" >&2
		exit 1
	fi
	claude_good "$claude_cache/claude" || claude_fetch
	mkdir -p "${claude_link%/*}"
	ln -f "$claude_cache/claude" "$claude_link.$$" 2>/dev/null || cp "$claude_cache/claude" "$claude_link.$$"
	mv -f "$claude_link.$$" "$claude_link"
fi
