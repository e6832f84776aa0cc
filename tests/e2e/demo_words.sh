# What the scripts of the demo share, for those that source it: what they say, and how they wait.
# shellcheck shell=bash
patience=120 # seconds that anything is waited for

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# stop MESSAGE
stop() {
  printf 'demo: %s\n' "$1" >&2
  exit 1
}
# until_true LABEL COMMAND...: looks until it succeeds.
until_true() {
  local label=$1 end=$((SECONDS + patience))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || stop "after $patience s it has not come to this: $label"
    sleep 0.1
  done
}
