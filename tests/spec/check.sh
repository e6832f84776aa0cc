#!/usr/bin/env bash
# check.sh [--bugs]: searches all runs of the model of a chain's replication, chain.pml, with Spin.
#   (nothing)  two chains: two targets and three crashes, three targets and two crashes
#   --bugs     also plants each bug that the model knows, and fails when the search misses one
# One line for each search. Exit code 1 when a run breaks what the model asserts, or when a search
# is not complete; 77, and why, when Spin or a C compiler is missing. Needs up to 2 GiB of memory.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$here/chain.pml
bugs=false
case ${1:-} in
  '') ;;
  --bugs) bugs=true ;;
  *) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac

for tool in spin gcc; do
  command -v "$tool" >/dev/null || {
    echo "skipped: there is no $tool; apt-get install --no-install-recommends spin gcc"
    exit 77
  }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$model" "$work/"
cd "$work"

two=(-DTARGETS=2 -DCRASHES=3 -DWRITES=3)
three=(-DTARGETS=3 -DCRASHES=2 -DWRITES=2)

# search NAME OPTION...: what Spin found goes to the file `found`.
search() {
  name=$1
  shift
  options=("$@")
  rm -f pan* chain.pml.trail found
  spin -a "${options[@]}" chain.pml >found 2>&1 || fail "the model does not translate"
  # Of the expanded d_steps GCC suspects accesses that Spin checks at run time.
  gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=256 -DMEMLIM=4000 -o pan pan.c
  timeout 900 ./pan -m20000 -w24 >found 2>&1 || fail "the search did not end"
}

# Of the last search.
fail() {
  echo "FAILED: $name: $1"
  cat found >&2
  [ ! -e chain.pml.trail ] || spin -t -p "${options[@]}" chain.pml | tail -n 60 >&2
  exit 1
}

measured() {
  awk '/states, stored/ { states = $1 } /total actual memory/ { memory = $1 }
    /elapsed time/ { time = $4 }
    END { printf "%d states, %s s, %d MiB", states, time, memory }' found
}

# No run breaks an assertion or ends early, and all were searched up to their end.
check_sound() {
  search "$@"
  grep -q 'errors: 0$' found || fail "a run breaks what the model asserts"
  if grep -Eq 'not completed|too small|truncated|out of memory|MEMLIM|aborting' found ||
    ! grep -q '^Full statespace search' found || ! grep -q 'invalid end states.*+' found; then
    fail "not all runs were searched"
  fi
  grep -A1 'unreached in proctype quiet' found | grep -q '(0 of ' || fail "no run ends"
  echo "$name: sound; $(measured)"
}

check_bug() {
  local bug=${1#BUG_} chain=("${two[@]}")
  [ "$2" = two ] || chain=("${three[@]}")
  search "$1, $2 targets" "${chain[@]}" "-D$1"
  grep -Eq 'errors: [1-9]' found || fail "not found"
  echo "planted, and found with $2 targets: ${bug,,}; $(measured)"
}

check_sound "two targets, three crashes, three writes" "${two[@]}"
check_sound "three targets, two crashes, two writes" "${three[@]}"
$bugs || exit 0

# Each planted bug, and how many targets it takes to show.
planted="
BUG_NO_VERSION_CHECK three
BUG_EARLY_ACK two
BUG_NO_RESYNC_LOCK two
BUG_SKIPPED_WHILE_PENDING three
BUG_OLDER_REPLACES two
BUG_PENDING_AS_COMMITTED two
BUG_SYNC_GOES_ON three
BUG_UNCONFIRMED_READS two
BUG_PREDECESSOR_ONLY three
BUG_TAIL_UNCONFIRMED three
BUG_TAIL_OF_OTHER_VERSION three
BUG_TAIL_DOES_NOT_WAIT two
BUG_TAIL_SHOWS_WHAT_WAS two
BUG_ANSWERS_FOR_OTHERS three
BUG_RESULTS_FORGOTTEN two
BUG_RESULTS_NOT_COPIED two
BUG_WHOLE_WITHOUT_RESULT two
BUG_CLIENT_VERSION_UNCHECKED two
BUG_PENDING_CANCELLED two
BUG_OTHER_WRITER_AS_SAME two
BUG_LASTSRV_DROPS_PENDING two
BUG_OLD_PROCESS_SERVES three
"
listed=$(awk 'NF { print $1 }' <<<"$planted" | sort)
known=$(grep -o 'BUG_[A-Z_]*[A-Z]' chain.pml | sort -u)
[ "$listed" = "$known" ] || {
  diff <(echo "$listed") <(echo "$known") || true
  echo "FAILED: chain.pml and check.sh know different bugs"
  exit 1
}
while read -r bug targets; do
  [ -z "$bug" ] || check_bug "$bug" "$targets"
done <<<"$planted"
