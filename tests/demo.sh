#!/usr/bin/env bash
# The main job, for real: a training state of 1 GiB is saved, a tenth of it changes, it is saved
# again, verified, loaded and compared byte for byte, with the speed of the disk beside it.
#   tests/demo.sh FF [DIR]     FF: the binary; DIR: where to work (default: a temporary directory)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ff=$(realpath "${1:?usage: tests/demo.sh FF [DIR]}")
base=${2:-${TMPDIR:-/tmp}}
work=$(mktemp -d "$base/ff-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
export FF_STATE=$work/state FF_STORE=$work/store
mib=${FF_DEMO_MIB:-1024}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
  printf '$ ff %s\n' "$*"
  "$ff" "$@"
}

need_mib=$((mib * 7 / 2 + 512))
free_mib=$(df -Pm "$base" | awk 'NR == 2 { print $4 }')
if [ "$free_mib" -lt "$need_mib" ]; then
  echo "demo: $base has $free_mib MiB free, $need_mib are needed; name another directory" >&2
  exit 1
fi

say "The raw speed of this disk"
run bench disk "$work" --size "${mib}MiB"

say "A training state of $mib MiB: step 1, and step 2 with a tenth of its tensors changed"
python3 "$here/make_safetensors.py" "$work/step1.safetensors" "$mib" 1
python3 "$here/make_safetensors.py" "$work/step2.safetensors" "$mib" 1 0.1
mkdir "$work/now"

say "Save step 1"
mv "$work/step1.safetensors" "$work/now/model.safetensors"
run checkpoint save --run demo --step 1 "$work/now/model.safetensors"
mv "$work/now/model.safetensors" "$work/step1.safetensors"

say "Save step 2: only what changed is written"
mv "$work/step2.safetensors" "$work/now/model.safetensors"
run checkpoint save --run demo --step 2 "$work/now/model.safetensors"
run checkpoint ls
logical=$(stat -c %s "$work/step1.safetensors" "$work/now/model.safetensors" |
  awk '{ sum += $1 } END { print sum }')
stored=$(du -sb "$work/store" | cut -f1)
awk -v l="$logical" -v s="$stored" \
  'BEGIN { printf "two steps of %.0f MiB are stored in %.0f MiB: dedup ratio %.2f\n",
           l / 1048576, s / 1048576, l / s }'

say "Verify every byte"
run checkpoint verify --all

say "Load both and compare"
run checkpoint load demo@1 "$work/loaded1"
run checkpoint load demo "$work/loaded2"
cmp "$work/step1.safetensors" "$work/loaded1/model.safetensors"
cmp "$work/now/model.safetensors" "$work/loaded2/model.safetensors"
run checkpoint export demo@1 "$work/exported.safetensors"
cmp "$work/step1.safetensors" "$work/exported.safetensors"
echo "byte for byte the same"
