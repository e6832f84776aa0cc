#!/usr/bin/env bash
# guests.sh one_guest|two_guests TEST_VERBS KERNEL_DIR [GTEST-OPTION...]
# guests.sh attack TEST_VERBS KERNEL_DIR TEST_ATTACK FF [GTEST-OPTION...]
# Runs tests over RDMA in QEMU, on the software RDMA device of Debian's kernel: needs no RDMA card
# and no KVM.
#   one_guest   every test of TEST_VERBS in one guest, over a loopback network
#   two_guests  a server in one guest, a client in another, then a job of both, over a virtual cable
#   attack      attackers against daemons of FF, over RDMA, in one guest
# KERNEL_DIR is what fetch_kernel.sh has made. Exit code 77, and why, when something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=$1 program=$2 kernel=$3
shift 3

skip() {
  echo "skipped: $*"
  exit 77
}
for tool in qemu-system-x86_64 busybox cpio; do
  command -v "$tool" >/dev/null ||
    skip "there is no $tool; ./bootstrap build installs it (qemu-system-x86 busybox-static cpio)"
done
[ -e "$kernel/order" ] || skip "no kernel in $kernel; ./bootstrap test fetches it"

work=$(mktemp -d)
guests=()
finish() {
  for guest in "${guests[@]}"; do kill "$guest" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

# make_initrd FILE...: with these files at their places.
make_initrd() {
  local root=$work/root file
  mkdir -p "$root/bb" "$root/modules"
  cp "$(command -v busybox)" "$root/bb/busybox"
  cp "$here/guest_init.sh" "$root/init"
  chmod 755 "$root/init"
  cp "$program" "$root/test_verbs"
  strip "$root/test_verbs"
  cp "$kernel"/*.ko "$kernel/order" "$root/modules/"
  for file in "$@"; do
    mkdir -p "$root$(dirname "$file")"
    cp "$file" "$root$file"
    strip "$root$file"
  done
  (cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initrd"
  rm -rf "$root"
}

# start NAME MTU SECONDS "rdma.WORD=..." [QEMU-OPTION...]: a guest in the background, its console in
# $work/NAME.log. Emulated: where /dev/kvm is there, it may still not run a Debian kernel.
# no_timer_check: on a busy host the emulated timer looks broken to the guest, which panics.
start() {
  local name=$1 mtu=$2 seconds=$3 words=$4
  shift 4
  timeout "$seconds" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp 1 \
    -m "${guest_mib:-768}" \
    -kernel "$kernel/vmlinux" -initrd "$work/initrd" -nodefaults -display none -no-reboot \
    -serial "file:$work/$name.log" "$@" \
    -append "console=ttyS0 panic=-1 quiet no_timer_check rdma.mtu=$mtu $words" </dev/null &
  guests+=($!)
}

# finished NAME: prints the console; whether its command succeeded.
finished() {
  echo "== $1"
  tr -d '\r' <"$work/$1.log" | sed 's/\x1b[^a-zA-Z]*[a-zA-Z]//g'
  grep -q 'GUEST-EXIT rc=0' "$work/$1.log"
}

words() {
  local IFS=,
  echo "$*"
}

case $mode in
  attack) make_initrd "$1" "$2" ;;
  *) make_initrd ;;
esac
case $mode in
  one_guest)
    start guest 9000 580 "rdma.netdev=dummy0 rdma.ip=10.77.0.1 rdma.run=$(words /test_verbs "$@")"
    wait "${guests[@]}" || true
    finished guest
    ;;
  attack)
    attacker=$1
    shift 2
    guest_mib=3072
    start guest 9000 880 "rdma.netdev=dummy0 rdma.ip=10.77.0.1 rdma.run=$(words "$attacker" "$@")"
    wait "${guests[@]}" || true
    finished guest
    ;;
  two_guests)
    cable=$work/cable
    card=virtio-net-pci,netdev=n,romfile=,host_mtu=9000
    start server 9000 580 "rdma.netdev=eth0 rdma.ip=10.77.0.1 rdma.run=/test_verbs,serve,7777" \
      -netdev "stream,id=n,server=on,addr.type=unix,addr.path=$cable" \
      -device "$card,mac=52:54:00:77:00:01"
    for _ in $(seq 100); do
      [ -S "$cable" ] && break
      sleep 0.1
    done
    start client 9000 580 \
      "rdma.netdev=eth0 rdma.ip=10.77.0.2 rdma.run=/test_verbs,visit,10.77.0.1,7777" \
      -netdev "stream,id=n,server=off,addr.type=unix,addr.path=$cable" \
      -device "$card,mac=52:54:00:77:00:02"
    wait "${guests[@]}" || true
    failed=0
    finished server || failed=1
    finished client || failed=1
    exit $failed
    ;;
  *)
    echo "usage: guests.sh one_guest|two_guests|attack TEST_VERBS KERNEL_DIR [...]" >&2
    exit 2
    ;;
esac
