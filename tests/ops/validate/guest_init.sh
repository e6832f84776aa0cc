#!/bb/busybox sh
# Process 1 of a guest that guest.py breaks: loads the drivers of its devices, then runs the lines
# that come over the serial console. After each it says "GUEST-DONE rc=N".
/bb/busybox mkdir -p /proc /sys /dev /tmp
/bb/busybox mount -t proc proc /proc
/bb/busybox mount -t sysfs sysfs /sys
/bb/busybox mount -t devtmpfs dev /dev
/bb/busybox --install -s /bb
export PATH=/bb:/ HOME=/tmp FF_STATE=/tmp/ff
mount -t tmpfs tmp /tmp
while read -r module; do
  insmod "/modules/$module" || echo "insmod $module failed"
done </modules/order.devices
stty -echo </dev/console
echo "GUEST-DONE rc=0"
while read -r line; do
  $line
  echo "GUEST-DONE rc=$?"
done
poweroff -f
