# The docker driver's tests start an engine of their own, with an image made of
# a static busybox.
command -v dockerd >/dev/null || install docker.io
[ -x /bin/busybox ] || install busybox-static
