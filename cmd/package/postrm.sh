#!/bin/sh
# After the files of ff are gone: lets systemd forget its units. The users ff and ff-storage stay,
# because data stays that belongs to them.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
