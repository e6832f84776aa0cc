#!/bin/sh
# After the files of ff are gone: lets systemd forget its units. There is nothing else to take away.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
