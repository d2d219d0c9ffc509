# The example driver of examples/plugin-bubblewrap makes its cells with bwrap.
command -v bwrap >/dev/null || install bubblewrap
