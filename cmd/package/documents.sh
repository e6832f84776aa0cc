#!/usr/bin/env bash
# What a package of ff has besides programs, libraries and headers: manual pages, units, changelogs,
# licences, and what lintian is to pass over.
#   documents.sh FF PREFIX VERSION MAINTAINER     FF: the binary; PREFIX: what will be /usr
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
ff=$1 prefix=$2 version=$3 maintainer=$4

# Debian's packages whose code is linked into ff or its libraries, or compiled from their headers.
linked=(libc6-dev libgcc-12-dev libssl-dev libsqlite3-dev libprotobuf-dev liburing-dev libzstd-dev
  libdeflate-dev libxxhash-dev libfuse3-dev libnuma-dev libibverbs-dev libnl-3-dev zlib1g-dev
  libjemalloc-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  rapidjson-dev)

# stop MESSAGE NEXT-STEP
stop() {
  printf 'package: %s\npackage: %s\n' "$1" "$2" >&2
  exit 1
}

# packed FILE: from standard input, the same bytes whenever it is made.
packed() { gzip -9n >"$1"; }

pages() {
  local page dir name
  for page in "$source"/man/*.[17]; do
    dir=$prefix/share/man/man${page##*.} name=${page##*/}
    mkdir -p "$dir"
    packed "$dir/$name.gz" <"$page"
  done
  # mount(8) calls mount.ff for the type ff.
  mkdir -p "$prefix/sbin" "$prefix/share/man/man8"
  ln -sf ../bin/ff "$prefix/sbin/mount.ff"
  ln -sf ../man1/ff-mount.1.gz "$prefix/share/man/man8/mount.ff.8.gz"
}

units() {
  local dir=$prefix/lib/systemd/system
  mkdir -p "$dir"
  "$ff" generate systemd "$dir" >/dev/null
  sed -i "s|=$(realpath "$ff") |=/usr/bin/ff |" "$dir"/ff-*.service
  ! grep -h '^ExecStart=' "$dir"/ff-*.service |
    grep -v -e '^ExecStart=/usr/bin/ff ' -e '^ExecStart=systemd-sysusers ' ||
    stop "a unit in $dir does not run /usr/bin/ff" "see how $ff generate systemd names itself"
}

changelogs() {
  local date
  date=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null ||
    stat -c %Y "$source/CHANGELOG.md")}
  packed "$1/changelog.gz" <"$source/CHANGELOG.md"
  packed "$1/changelog.Debian.gz" <<END
ff ($version) bookworm; urgency=medium

  * What is new stands in changelog.gz.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$date")
END
}

licences() {
  local package text
  mkdir -p "$1/libraries"
  cp "$here/copyright.txt" "$1/copyright"
  for package in "${linked[@]}"; do
    text=/usr/share/doc/$package/copyright
    [ -e "$text" ] ||
      stop "$text is missing, so the package would not have the licence of what is linked in" \
        "install $package again, without leaving out documents (/etc/dpkg/dpkg.cfg.d)"
    cp -L "$text" "$1/libraries/$package"
  done
  {
    echo "# Packages of Debian, curl and libpq, as they were when this ff was linked."
    dpkg-query -W -f '${Package} ${Version}\n' "${linked[@]}" libboost-dev
    "$ff" help --versions | awk '$1 == "curl" || $1 == "libpq" { print $1, $2 }'
  } >"$1/libraries/versions"
  chmod 644 "$1/copyright" "$1/libraries"/*
}

umask 022
doc=$prefix/share/doc/ff
mkdir -p "$doc" "$prefix/share/lintian/overrides"
pages
units
changelogs "$doc"
licences "$doc"
cp "$here/lintian.txt" "$prefix/share/lintian/overrides/ff"
chmod 644 "$prefix/share/lintian/overrides/ff"
