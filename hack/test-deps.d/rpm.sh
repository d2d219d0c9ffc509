# The rpm packages are looked at with rpm's own tools.
command -v rpm >/dev/null || install rpm
