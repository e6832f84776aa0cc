#!/usr/bin/env bash
# Time sharing, for real: a task of low priority runs on this machine's one node, is interrupted by
# one of high priority, saves the step that it is at, and goes on there once the node is free again.
#   tests/e2e/demo_tasks.sh FF [DIR]     FF: the binary; DIR: where to work
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ff=$(realpath "${1:?usage: tests/e2e/demo_tasks.sh FF [DIR]}")
base=$(realpath "${2:-${TMPDIR:-/tmp}}")
# shellcheck source=tests/e2e/demo_words.sh
source "$here/demo_words.sh"
work=$(mktemp -d "$base/ff-demo-tasks.XXXXXX")
chmod 755 "$work"
mkdir "$work/home"
unset FF_KEY FF_META
export FF_STATE=$work/state XDG_CONFIG_HOME=$work/home
scheduler='' agent=''

# ff as the user whose tasks these are: root has none.
as_user=()
if [ "$(id -u)" = 0 ]; then
  as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups env "HOME=$work/home"
    "FF_KEY=$work/home/cluster.key")
  chown 65534:65534 "$work/home"
  # That user may not enter the home of root, where the tree may lie.
  cp "$ff" "$work/ff" && ff=$work/ff
fi
user() { "${as_user[@]}" "$ff" schedule "$@"; }
shown() {
  printf '$ ff schedule %s\n' "$*"
  user "$@"
}
# of ID EXPRESSION: of what is known of a task, in Python.
of() {
  user show "$1" --json | python3 -c '
import json, sys
print(eval(sys.argv[1], {"task": json.load(sys.stdin)["data"]}))' "$2"
}
is() { [ "$(of "$1" 'task["state"]')" = "$2" ]; }
free() { user nodes --json | grep -q '"usable":true'; }

clean_up() {
  local status=$?
  [ "$status" = 0 ] || cat "$work"/*.log >&2
  trap '' INT TERM
  for task in ${low-} ${high-}; do user stop "$task" >/dev/null 2>&1 || true; done
  if [ -n "$agent" ] && [ -n "${low-}" ]; then
    for _ in $(seq 600); do
      [ -n "$(user list 2>/dev/null)" ] || break
      sleep 0.1
    done
  fi
  for daemon in $agent $scheduler; do kill "$daemon" 2>/dev/null && wait "$daemon" || true; done
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "A scheduler, and this machine as its node"
# The user and the daemons each have a file of their own: who could replace one is not trusted.
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$work/daemon.key" &&
  cp "$work/daemon.key" "$work/home/cluster.key")
[ "$(id -u)" != 0 ] || chown 65534:65534 "$work/home/cluster.key"
export FF_KEY=$work/daemon.key
"$ff" schedule serve --dir "$work/scheduler" --listen 127.0.0.1:0 >"$work/scheduler.log" 2>&1 &
scheduler=$!
until_true "the scheduler listens" grep -q '^listening' "$work/scheduler.log"
FF_SCHEDULER=$(sed -n 's/^listening on //p' "$work/scheduler.log")
export FF_SCHEDULER
"$ff" schedule agent --name node1 --dir "$work/agent" --listen 127.0.0.1:0 >"$work/agent.log" 2>&1 &
agent=$!
until_true "the node is there" free
shown nodes

say "A task of low priority, which counts and saves when it is asked"
cat >"$work/home/train.sh" <<'END'
step=$(cat step 2>/dev/null || echo 0)
echo "goes on at step $step, on $(cat /proc/sys/kernel/hostname) as rank $RANK of $WORLD_SIZE"
while [ "$step" -lt 60 ]; do
  sleep 0.1
  step=$((step + 1))
  echo "$step" >"$FF_TASK_DIR/heartbeat.$RANK"
  if [ -e "$FF_TASK_DIR/stop" ]; then
    touch "$FF_TASK_DIR/ack"
    echo "$step" >step
    echo "$step" >"$FF_TASK_DIR/saved"
    exit
  fi
done
echo "has done all $step steps"
END
low=$(user submit --name low -p 10 --chdir "$work/home" bash train.sh)
until_true "it runs" is "$low" running
until_true "it has begun" bash -c "'$ff' schedule logs $low | grep -q 'goes on at step 0'"
shown list

say "One of high priority takes its node"
shown run --name high -p 50 bash -c 'echo "runs in its place"'
until_true "the first goes on" is "$low" running
shown show "$low" | grep -E '^[0-9]'

say "And it goes on where it was"
until_true "it has done its work" is "$low" succeeded
user logs "$low" | cut -d' ' -f2-
saved=$(of "$low" 'task["attempts"][0]["saved_step"]')
user logs "$low" | grep -q "goes on at step $saved," || stop "it did not go on at step $saved"
