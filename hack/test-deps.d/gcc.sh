# Go's race detector links with a C compiler.
command -v gcc >/dev/null || install gcc libc6-dev
