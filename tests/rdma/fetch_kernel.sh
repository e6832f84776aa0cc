#!/usr/bin/env bash
# fetch_kernel.sh DIR: Debian's kernel for the test guests, into DIR: vmlinux, modules, and the
# order in which they load: `order` for software RDMA, `order.devices` for the disks and the network
# card that tests/ops/validate/guest.py gives a guest. The package is unpacked, never installed.
# Nothing is fetched when DIR has it all. Needs package lists (apt-get update), python3 and kmod.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -e "$dir/order" ] && [ -e "$dir/order.devices" ] && exit 0

# The cloud flavour has no rdma_rxe; old versions leave the mirror, so the name is looked up.
package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
[ -n "$package" ] || {
  echo "apt knows no linux-image-amd64" >&2
  exit 1
}
version=${package#linux-image-}

work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -q -o Acquire::Retries=3 -o "APT::Sandbox::User=$(id -un)" download "$package"
dpkg -x "$package"_*.deb root
depmod -b root "$version"

mkdir ready
# order_of FILE MODULE...: these modules and what they need, each before those that need it.
order_of() {
  local list=ready/$1 module
  shift
  for module in "$@"; do
    modprobe -d root -S "$version" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >modules
  while read -r module; do
    cp "$module" ready/
    basename "$module" >>"$list"
  done <modules
}
# rxe asks the crypto API for crc32, which modprobe does not know.
order_of order crc32_generic virtio_pci virtio_net dummy rdma_rxe ib_uverbs
order_of order.devices nvme ahci sd_mod e1000e
strip -g ready/*.ko
python3 "$here/extract_vmlinux.py" "root/boot/vmlinuz-$version" ready/vmlinux
mv ready/*.ko ready/vmlinux "$dir/"
mv ready/order.devices ready/order "$dir/"
