#!/usr/bin/env bash
# The software bill of materials (SBOM) of build/ff: every package whose code is linked into it or
# compiled from its headers, as SPDX 2.3 in JSON. The libraries are those of the link line in
# build.ninja; names and versions come from dpkg. The same build gives the same bytes.
#   sbom.sh BUILD CURL LIBPQ VERSION OUTPUT     CURL, LIBPQ: the prefixes of these static libraries
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$1 curl=$2 libpq=$3 version=$4 output=$5

# Headers only, so that no link line names them.
headers=(libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev rapidjson-dev
  libboost-dev)
# What the compiler adds to every static program.
implicit=(-lstdc++ -lgcc -lgcc_eh -lc)

# stop MESSAGE NEXT-STEP
stop() {
  printf 'sbom: %s\nsbom: %s\n' "$1" "$2" >&2
  exit 1
}

# The identifier of SPDX for the licence of a package, as copyright.txt has it.
licence_of() {
  case $1 in
    libc6-dev) echo LGPL-2.1-or-later ;;
    libgcc-*-dev | libstdc++-*-dev) echo 'GPL-3.0-or-later WITH GCC-exception-3.1' ;;
    libssl-dev) echo Apache-2.0 ;;
    libsqlite3-dev) echo blessing ;;
    libprotobuf-dev | libcli11-dev) echo BSD-3-Clause ;;
    liburing-dev) echo 'LGPL-2.1-or-later OR MIT' ;;
    libzstd-dev) echo 'BSD-3-Clause OR GPL-2.0-only' ;;
    libxxhash-dev | libjemalloc-dev) echo BSD-2-Clause ;;
    libfuse3-dev | libnuma-dev | libnl-3-dev | libnl-route-3-dev) echo LGPL-2.1-only ;;
    libibverbs-dev) echo 'Linux-OpenIB OR GPL-2.0-only' ;;
    zlib1g-dev) echo Zlib ;;
    libfmt-dev | libspdlog-dev | nlohmann-json3-dev | libtomlplusplus-dev | libdeflate-dev)
      echo MIT ;;
    rapidjson-dev) echo 'MIT AND BSD-3-Clause' ;;
    libboost-dev) echo BSL-1.0 ;;
    *) stop "the licence of $1, which is linked into ff, is not known" \
      "add it to licence_of() in cmd/package/sbom.sh and to cmd/package/copyright.txt" ;;
  esac
}

# Words of the link line of ff: -lNAME, -l:FILE, PATH.a; without ff's own libraries.
linked_words() {
  awk '/^build ff[ :]/ { inside = 1 }
       inside && $1 == "LINK_LIBRARIES" { for (i = 3; i <= NF; i++) print $i; exit }' \
    "$build/build.ninja" | grep -v '^libff_.*\.a$' | sort -u
}

# archive_of WORD: sets `file` to the file that the linker takes.
archive_of() {
  local name dir
  case $1 in
    -l:*) name=${1#-l:} ;;
    -l*) name=lib${1#-l}.a ;;
    *)
      file=$1
      return
      ;;
  esac
  for dir in "${search[@]}"; do
    [ ! -e "$dir/$name" ] || { file=$dir/$name && return; }
  done
  stop "$name, which is linked into ff, is in no folder of the linker" "install it again"
}

# owners FILE...: lines "PACKAGE ARCHIVE". dpkg may know a file by its name before /lib was merged
# into /usr.
owners() { { dpkg -S "$@" "${@#/usr}" 2>/dev/null || true; } | sed 's|:[^/]* /.*/| |' | sort -u; }

# Lines "PACKAGE ARCHIVE" of all archives, but for those of curl and libpq, which no package has.
archives() {
  local word file files=() owned
  for word in "${words[@]}" "${implicit[@]}"; do
    case $word in "$curl"/* | "$libpq"/*) continue ;; esac
    archive_of "$word"
    files+=("$file")
  done
  mapfile -t files < <(realpath "${files[@]}")
  owned=$(owners "${files[@]}")
  for file in "${files[@]}"; do
    [[ "$owned"$'\n' == *" ${file##*/}"$'\n'* ]] ||
      stop "$file is linked into ff and belongs to no package" "name it in cmd/package/sbom.sh"
  done
  echo "$owned"
}

# Lines "PACKAGE VERSION SOURCE SOURCE-VERSION" of all packages that have a version.
versions() {
  # The ${...} belong to dpkg-query.
  # shellcheck disable=SC2016
  dpkg-query -W -f '${Package} ${Version} ${source:Package} ${source:Version}\n' \
    "${names[@]}" "${headers[@]}"
}

# package NAME VERSION LICENCE PURL SOURCE COMMENT
package() {
  printf '%s    {"SPDXID": "SPDXRef-%s", "name": "%s",\n' "$comma" "${1//+/.}" "$1"
  printf '     "versionInfo": "%s",\n' "$2"
  printf '     "downloadLocation": "NOASSERTION", "filesAnalyzed": false,\n'
  printf '     "licenseConcluded": "NOASSERTION", "licenseDeclared": "%s",\n' "$3"
  printf '     "copyrightText": "NOASSERTION", "sourceInfo": "%s",\n     "comment": "%s"' "$5" "$6"
  [ -z "$4" ] || printf ',\n     "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER",
       "referenceType": "purl", "referenceLocator": "%s"}]' "$4"
  printf '}'
  comma=$',\n'
}

# debian_package NAME COMMENT
debian_package() {
  local name=$1 number from from_version licence
  licence=$(licence_of "$name")
  read -r number from from_version < <(sed -n "s/^$name //p" <<<"$known") || true
  [ -n "$number" ] || stop "dpkg knows no version of $name" "install it again"
  package "$name" "$number" "$licence" \
    "pkg:deb/debian/${name//+/%2B}@${number//+/%2B}?arch=amd64" \
    "source package $from $from_version of Debian" "$2"
}

curl_package() {
  local number digest
  number=$(awk '$2 == "LIBCURL_VERSION" { gsub("\"", "", $3); print $3 }' \
    "$curl/include/curl/curlver.h")
  digest=$(cut -d ' ' -f 1 "$curl/recipe" 2>/dev/null || echo unknown)
  package curl "$number" curl "pkg:generic/curl@$number" \
    "source package curl of Debian; SHA-256 of the upstream archive: $digest" libcurl.a
}

libpq_package() {
  local number digest
  number=$(cat "$libpq/version")
  digest=$(cut -d ' ' -f 1 "$libpq/recipe")
  package libpq "$number" PostgreSQL "pkg:generic/postgresql@$number" \
    "source package postgresql-15 of Debian; SHA-256 of the upstream archive: $digest" \
    'libpq.a libpgcommon.a libpgport.a'
}

packages() {
  local comma='' name
  package ff "$version" MIT '' 'this tree' 'the program build/ff'
  for name in "${names[@]}"; do
    debian_package "$name" "$(awk -v name="$name" \
      '$1 == name { printf "%s%s", sep, $2; sep = " " }' <<<"$found")"
  done
  for name in "${headers[@]}"; do debian_package "$name" 'headers only'; done
  curl_package
  libpq_package
}

relationships() {
  local name
  printf '    {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",\n'
  printf '     "relatedSpdxElement": "SPDXRef-ff"}'
  for name in "${names[@]}" curl libpq; do
    printf ',\n    {"spdxElementId": "SPDXRef-ff", "relationshipType": "STATIC_LINK",\n'
    printf '     "relatedSpdxElement": "SPDXRef-%s"}' "${name//+/.}"
  done
  for name in "${headers[@]}"; do
    printf ',\n    {"spdxElementId": "SPDXRef-ff", "relationshipType": "CONTAINS",\n'
    printf '     "relatedSpdxElement": "SPDXRef-%s"}' "${name//+/.}"
  done
}

document() {
  local all created digest
  all=$(packages)
  digest=$(sha256sum <<<"$all" | cut -c 1-32)
  created=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null ||
    stat -c %Y "$source/CHANGELOG.md")}
  cat <<JSON
{
  "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
  "name": "ff-$version",
  "documentNamespace": "https://spdx.org/spdxdocs/ff-$version-$digest",
  "creationInfo": {"created": "$(date -u -d "@$created" +%Y-%m-%dT%H:%M:%SZ)",
                   "creators": ["Tool: ff-sbom"]},
  "packages": [
$all
  ],
  "relationships": [
$(relationships)
  ]
}
JSON
}

export LC_ALL=C
if ! command -v dpkg-query >/dev/null; then
  echo "sbom: there is no dpkg here, so there is no $output" >&2
  exit 0
fi
mapfile -t words < <(linked_words)
[ ${#words[@]} != 0 ] || stop "$build/build.ninja has no link line of ff" \
  "configure the build with cmake --preset release-static"
IFS=: read -ra search < <("${CXX:-g++}" -print-search-dirs | sed -n 's/^libraries: =//p')
found=$(archives)
mapfile -t names < <(cut -d ' ' -f 1 <<<"$found" | sort -u)
known=$(versions)
document >"$output.new"
mv "$output.new" "$output"
