#!/bin/sh
# After ff is unpacked: compiles its Python package, and lets systemd read the units anew. Daemons
# that run go on as they are: ff-cluster(7) says how to upgrade a cluster, one node at a time.
set -e

if [ "$1" = configure ]; then
	if command -v py3compile >/dev/null 2>&1; then
		py3compile -p ff
	fi
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload >/dev/null || true
	fi
fi
