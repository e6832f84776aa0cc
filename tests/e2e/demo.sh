#!/usr/bin/env bash
# The main job, for real: a replicated file system comes up with one command and is mounted; a
# checkpoint is saved into it while one of its storage daemons is killed, verified and loaded byte
# for byte; a tree of real sources is copied in and compared. Timings stand beside the raw disk.
# Then a task is interrupted by another, and goes on (demo_tasks.sh).
#   tests/e2e/demo.sh FF [DIR]     FF: the binary; DIR: where to work (default: a temporary one)
# FF_DEMO_MIB is the size of each of the two checkpoints.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ff=$(realpath "${1:?usage: tests/e2e/demo.sh FF [DIR]}")
base=$(realpath "${2:-${TMPDIR:-/tmp}}")
mib=${FF_DEMO_MIB:-384}
# shellcheck source=tests/e2e/demo_words.sh
source "$here/demo_words.sh"

run() {
  printf '$ ff %s\n' "$*"
  "$ff" "$@"
}

[ -e /dev/fuse ] || stop "there is no /dev/fuse here, which a mount needs: 'modprobe fuse' as root;
  a container needs --device /dev/fuse --cap-add SYS_ADMIN"
{ : <>/dev/fuse; } 2>/dev/null || stop "this user may not open /dev/fuse: run the demo as root"
if [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null; then
  stop "who is not root mounts through fusermount3: install the package fuse3, or run it as root"
fi
# Two checkpoints, and two copies of each in the cluster; what is loaded; the raw disk's file.
need_mib=$((mib * 8 + 512))
free_mib=$(df -Pm "$base" | awk 'NR == 2 { print $4 }')
[ "$free_mib" -ge "$need_mib" ] ||
  stop "$base has $free_mib MiB free, $need_mib are needed; name another directory"

work=$(mktemp -d "$base/ff-demo.XXXXXX")
export FF_STATE=$work/state
cluster=$work/cluster mnt=$work/mnt saving=

# Also after a failure, and at Ctrl-C: nothing runs on, nothing stays.
clean_up() {
  local status=$?
  trap '' INT TERM
  [ -z "$saving" ] || kill "$saving" 2>/dev/null || true
  "$ff" down --quiet --dir "$cluster" --purge --yes >/dev/null || status=1
  if mountpoint -q "$mnt"; then
    echo "demo: $mnt is still mounted, and $work stays" >&2
    exit 1
  fi
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

now() { date +%s.%N; }
rates=()
# timed LABEL COMMAND...: what it did to a file of $bytes, for the table at the end.
timed() {
  local label=$1 begin
  shift
  begin=$(now)
  "$@"
  rates+=("$(awk -v l="$label" -v b="$begin" -v e="$(now)" -v n="$bytes" \
    'BEGIN { printf "%-44s %7.2f s %8.0f MiB/s", l, e - b, n / 1048576 / (e - b) }')")
}
# field NAME: of `ff up --json` on standard input, its data; daemon/NAME: the process of one.
field() {
  python3 -c '
import json, sys
data, name = json.load(sys.stdin)["data"], sys.argv[1]
daemons = {one["name"]: one["pid"] for one in data["daemons"]}
print(daemons[name[7:]] if name.startswith("daemon/") else data[name])' "$1"
}
drop() { [ "$(id -u)" != 0 ] || { sync && echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || true; }

say "One command: three storage daemons, two copies of everything, mounted"
begin=$(now)
run up --dir "$cluster" --storage 3 --replicas 2 --mount "$mnt"
awk -v b="$begin" -v e="$(now)" 'BEGIN { printf "up after %.1f s\n", e - b }'
running=$("$ff" up --dir "$cluster" --json)
FF_META=$(field meta <<<"$running")
FF_KEY=$(field key <<<"$running")
export FF_META FF_KEY
df -h "$mnt" | sed 's/^/  /'

say "Two states of a training of $mib MiB each"
for step in 1 2; do
  python3 "$here/make_safetensors.py" "$work/step$step.safetensors" "$mib" "$step"
  mkdir "$work/now$step"
  mv "$work/step$step.safetensors" "$work/now$step/model.safetensors"
done
first=$work/now1/model.safetensors second=$work/now2/model.safetensors
store=$mnt/checkpoints
bytes=$(stat -c %s "$first")

say "The raw disk below all of it"
drop
timed "raw disk: dd writes the file" \
  dd if="$first" of="$work/raw" bs=4M oflag=direct conv=fsync status=none
drop
timed "raw disk: dd reads the file" dd if="$work/raw" of=/dev/null bs=4M iflag=direct status=none
rm "$work/raw"
printf '%s\n' "${rates[@]}"

say "Save step 1 into the mount"
timed "save into the mount (each byte twice)" \
  run checkpoint save --store "$store" --run demo --step 1 "$first"

say "Save step 2, and kill a storage daemon in the middle of it"
chunks() { find "$store/chunks" -type f | wc -l; }
before=$(chunks)
victim=$("$ff" up --dir "$cluster" --json | field daemon/storage-2)
save_and_kill() {
  local written
  printf '$ ff checkpoint save --store %s --run demo --step 2 %s &\n' "$store" "$second"
  "$ff" checkpoint save --store "$store" --run demo --step 2 "$second" >"$work/save.log" 2>&1 &
  saving=$!
  until written=$(($(chunks) - before)) && [ "$written" -ge $((before / 8)) ]; do
    kill -0 "$saving" 2>/dev/null || break
  done
  kill -9 "$victim"
  echo "\$ kill -9 $victim    # storage-2, with $written of about $before chunks in their place"
  wait "$saving" || { cat "$work/save.log" >&2 && stop "the save has failed"; }
  saving=
  cat "$work/save.log"
}
timed "the same, with a storage daemon killed in it" save_and_kill

say "Verify every byte, load both, compare"
export FF_STORE=$store
run checkpoint verify --all
drop
timed "load from the mount" run checkpoint load demo@2 "$work/loaded2"
run checkpoint load demo@1 "$work/loaded1"
cmp "$first" "$work/loaded1/model.safetensors"
cmp "$second" "$work/loaded2/model.safetensors"
echo "byte for byte the same"
rm -r "$work/loaded1" "$work/loaded2"

say "The daemon has restarted, and ff copies what it missed"
until_true "all chains are whole" "$ff" admin status
run admin status

say "A tree of real files: the sources of ff, with cp -a"
tree=$mnt/sources
mkdir "$tree"
sources=()
for name in core cmd tests man completions; do
  [ ! -d "$here/../../$name" ] || sources+=("$(realpath "$here/../../$name")")
done
begin=$(now)
cp -a "${sources[@]}" "$tree/"
sync -f "$tree"
files=$(find "$tree" | wc -l)
awk -v b="$begin" -v e="$(now)" -v n="$files" \
  'BEGIN { printf "%d files and directories in %.1f s: %.0f a second\n", n, e - b, n / (e - b) }'
# What cp -a keeps of each: kind, mode, owner, size, time of change to the nanosecond.
listing() {
  (cd "$1" && shift && find "$@" \( -type d -printf '%p %y %m %U:%G %T@\n' \) -o \
    -printf '%p %y %m %U:%G %s %T@ %l\n' | sort)
}
for source in "${sources[@]}"; do
  name=$(basename "$source")
  diff -r --no-dereference "$source" "$tree/$name"
  diff <(listing "$(dirname "$source")" "$name") <(listing "$tree" "$name")
done
echo "contents, modes, owners and times are the same"

say "Timings, of $((bytes >> 20)) MiB each"
printf '%s\n' "${rates[@]}"

say "Stop it, and remove it with all its data"
run down --dir "$cluster" --purge --yes
"$here/demo_tasks.sh" "$ff" "$base"
