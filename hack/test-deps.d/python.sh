# shellcheck shell=bash
# The Python harness adapter is tested with the interpreter that users have.
command -v python3 >/dev/null || install python3-minimal libpython3-stdlib
