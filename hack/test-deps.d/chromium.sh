# The Control Room is tested in the browser that Debian ships, without a screen;
# the fonts are those that people have.
# shellcheck shell=bash
command -v chromium >/dev/null || install chromium fonts-dejavu-core
