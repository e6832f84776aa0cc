#!/bin/sh
# Before files of ff go away: what Python has compiled of them, too. Before ff is removed for good,
# what runs from its units is stopped, and the links that `systemctl enable` has made are deleted.
# Data, /etc/ff and /var/lib/ff stay.
set -e

units="ff-mount@ ff-serve-kv ff-serve-kv-s3 ff-schedule-agent ff-serve-storage ff-schedule-serve
	ff-serve-meta ff-up@ ff-users ff-validate"

if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ]; then
		for unit in ff-serve-kv ff-serve-kv-s3; do
			deb-systemd-invoke stop "$unit.socket" >/dev/null || true
		done
		for unit in $units; do
			case $unit in *@) unit="$unit*" ;; esac
			deb-systemd-invoke stop "$unit.service" >/dev/null || true
		done
		deb-systemd-invoke stop ff-validate.timer >/dev/null || true
	fi
	for unit in $units; do
		if [ -d /etc/systemd/system ]; then
			find /etc/systemd/system -type l -lname "*/lib/systemd/system/$unit.*" -delete
		fi
	done
fi

if command -v py3clean >/dev/null 2>&1; then
	py3clean -p ff
else
	rm -rf /usr/lib/python3/dist-packages/ff/__pycache__ \
		/usr/lib/python3/dist-packages/hf3fs_fuse/__pycache__
fi
