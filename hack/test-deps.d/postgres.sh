# The PostgreSQL revoker is tested against a server that its tests start and
# stop themselves; the package's own server is not used, and not left running.
if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
	if command -v apt-get >/dev/null && ! [ -e /etc/postgresql-common/createcluster.conf ]; then
		$sudo mkdir -p /etc/postgresql-common
		echo "create_main_cluster = false" | $sudo tee /etc/postgresql-common/createcluster.conf >/dev/null
	fi
	install postgresql
fi
