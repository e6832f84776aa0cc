#!/bb/busybox sh
# Process 1 of a test guest: loads the modules, makes the RDMA device rxe0 and runs one command. All
# comes from the kernel's command line: rdma.netdev=dummy0|eth0, rdma.ip=A.B.C.D, rdma.mtu=BYTES and
# rdma.run=WORD,WORD,... The last line on the console is "GUEST-EXIT rc=N".
/bb/busybox mkdir -p /proc /sys /dev /tmp
/bb/busybox mount -t proc proc /proc
/bb/busybox mount -t sysfs sysfs /sys
/bb/busybox mount -t devtmpfs dev /dev
/bb/busybox --install -s /bb
export PATH=/bb HOME=/tmp
# With the files of the initrd, whose tree may lie below /tmp.
mkdir /fresh
mount -t tmpfs tmp /fresh
cp -a /tmp/. /fresh/
mount --move /fresh /tmp

for word in $(cat /proc/cmdline); do
  case $word in
    rdma.netdev=*) netdev=${word#*=} ;;
    rdma.ip=*) ip=${word#*=} ;;
    rdma.mtu=*) mtu=${word#*=} ;;
    rdma.run=*) run=$(echo "${word#*=}" | tr , ' ') ;;
  esac
done

while read -r module; do
  options=
  [ "$module" = dummy.ko ] && options=numdummies=1
  insmod "/modules/$module" $options || echo "insmod $module failed"
done </modules/order
ip link set lo up
ip link set "$netdev" mtu "$mtu"
ip addr add "$ip/24" dev "$netdev"
ip link set "$netdev" up
/test_verbs link rxe0 "$netdev" || echo "no device rxe0"

$run
rc=$?
[ $rc = 0 ] || dmesg | tail -n 30
echo "GUEST-EXIT rc=$rc after $(cut -d ' ' -f 1 /proc/uptime) s"
poweroff -f
