#!/bin/sh
# After ff is unpacked: makes the users of its daemons, compiles its Python package, and lets
# systemd
# read the units anew. Daemons that run go on as they are: ff-cluster(7) says how to upgrade a
# cluster, one node at a time.
set -e

# make_user NAME GECOS
make_user() {
	getent passwd "$1" >/dev/null || adduser --quiet --system --group --no-create-home \
		--home /nonexistent --gecos "$2" "$1"
}

if [ "$1" = configure ]; then
	make_user ff "ff managers and schedulers"
	make_user ff-storage "ff storage nodes"
	if command -v py3compile >/dev/null 2>&1; then
		py3compile -p ff
	fi
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload >/dev/null || true
	fi
fi
