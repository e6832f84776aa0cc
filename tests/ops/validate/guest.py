#!/usr/bin/env python3
# `ff validate` on a machine whose hardware can be broken: a QEMU guest with an NVMe and an ATA disk
# and a network card.
"""usage: guest.py FF KERNEL_DIR

FF is a static ff, KERNEL_DIR what tests/rdma/fetch_kernel.sh has made. Faults are put in through
QEMU's monitor and below its disks. Exit code 77, and why, when something is missing.
"""
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
BAD_SECTOR = 2048  # of the ATA disk
DEADLINE = 240  # seconds for one command in the guest: it is emulated


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def make_initrd(work, ff, kernel):
    root = work / "root"
    (root / "bb").mkdir(parents=True)
    (root / "modules").mkdir()
    shutil.copy(shutil.which("busybox"), root / "bb/busybox")
    shutil.copy(HERE / "guest_init.sh", root / "init")
    (root / "init").chmod(0o755)
    shutil.copy(ff, root / "ff")
    for module in kernel.glob("*.ko"):
        shutil.copy(module, root / "modules")
    shutil.copy(kernel / "order.devices", root / "modules")
    subprocess.run("find . | cpio -o -H newc --quiet >../initrd", shell=True, cwd=root, check=True)


class Guest:
    def __init__(self, work, kernel):
        for name in ("nvme", "ata"):
            with open(work / name, "wb") as disk:
                disk.truncate(64 << 20)
        (work / "faults").write_text(
            f'[inject-error]\nevent = "read_aio"\nerrno = "5"\nsector = "{BAD_SECTOR}"\n')
        self.monitor_path = f"{work}/monitor"
        self.qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
             "-smp", "2", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot",
             "-kernel", kernel / "vmlinux", "-initrd", work / "initrd",
             "-append", "console=ttyS0 panic=-1 quiet loglevel=0 no_timer_check",
             "-serial", "stdio", "-monitor", f"unix:{self.monitor_path},server=on,wait=off",
             "-device", "pcie-root-port,id=port1,slot=1,x-speed=16,x-width=16",
             "-device", "pcie-root-port,id=port2,slot=2",
             "-drive", f"file={work}/nvme,format=raw,if=none,id=d1",
             "-device", "nvme,id=nvme0,serial=ff-nvme,drive=d1,bus=port1",
             "-drive", f"file=blkdebug:{work}/faults:{work}/ata,format=raw,if=none,id=d2",
             "-device", "ide-hd,drive=d2,serial=ff-ata,bus=ide.0,rerror=report",
             "-device", "e1000e,id=nic,bus=port2,romfile="],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.until_done()

    def listen(self):
        for line in self.qemu.stdout:
            self.lines.put(line.decode(errors="replace").rstrip())
        self.lines.put(None)

    def until_done(self):
        """What the guest has said, and how its last command ended."""
        said, end = [], time.monotonic() + DEADLINE
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                raise SystemExit("the guest does not answer:\n" + "\n".join(said))
            if line is None:
                raise SystemExit("the guest has ended:\n" + "\n".join(said))
            if line.startswith("GUEST-DONE rc="):
                return said, int(line.split("=")[1])
            said.append(line)

    def run(self, line):
        self.qemu.stdin.write(line.encode() + b"\n")
        self.qemu.stdin.flush()
        return self.until_done()

    def monitor(self, line):
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor_path)
            answer = monitor.recv(65536)
            while not answer.endswith(b"(qemu) "):
                answer += monitor.recv(65536)
            monitor.sendall(line.encode() + b"\n")
            answer = b""
            while not answer.endswith(b"(qemu) "):
                answer += monitor.recv(65536)
        print(f"monitor: {line}: {answer.decode(errors='replace').splitlines()[1:-1]}")

    def validate(self, *only):
        words = " ".join(f"--only {one}" for one in only)
        said, code = self.run(f"ff validate --json {words}")
        print(f"ff validate {words}: exit {code}")
        text = next(line for line in said if line.startswith("{"))
        checks = json.loads(text)["data"]["checks"]
        for check in checks:
            print(f"  {check['verdict']:14} {check['name']:22} {check['part']:34} {check['found']}")
        return checks, code

    def end(self):
        self.qemu.kill()
        self.qemu.wait()


def one(checks, name, part=""):
    found = [check for check in checks if check["name"] == name and part in check["part"]]
    assert found, f"nothing of {name} {part}"
    order = ["skipped", "pass", "could-not-run", "degraded", "fail"]
    return max(found, key=lambda check: order.index(check["verdict"]))


def expect(check, verdict, words):
    assert check["verdict"] == verdict and words in check["found"], (verdict, words, check)


def healthy(guest):
    said, code = guest.run("ff validate adopt")
    assert code == 0, said
    for part in ("ff-ata", "pci 0000:0"):
        assert any(part in line for line in said), (part, said)
    checks, _ = guest.validate("storage.health", "storage.disks", "pci", "log", "host.inventory")
    expect(one(checks, "storage.health", "nvme0"), "pass", "% spare")
    expect(one(checks, "storage.health", "sda"), "pass", "0 sectors reallocated")
    expect(one(checks, "storage.media-errors", "nvme0"), "pass", "0 in its life")
    expect(one(checks, "storage.disks", "nvme0n1"), "pass", "live")
    expect(one(checks, "host.inventory"), "pass", "as recorded")
    expect(one(checks, "pci.link", "NVMe"), "pass", "x1")
    expect(one(checks, "pci.aer", "network card"), "pass", "0 corrected")
    expect(one(checks, "log.pcie"), "pass", "nothing")


def broken(guest):
    guest.monitor("qom-set /machine/peripheral/nvme0 smart_critical_warning 4")
    checks, code = guest.validate("storage.health")
    assert code == 3
    expect(one(checks, "storage.health", "nvme0"), "fail", "no longer reliable")

    guest.run(f"dd if=/dev/sda of=/dev/null bs=512 count=1 iflag=direct skip={BAD_SECTOR}")
    checks, code = guest.validate("log")
    assert code == 3
    expect(one(checks, "log.disk", "a disk failed"), "fail", f"dev sda, sector {BAD_SECTOR}")
    checks, code = guest.validate("log")
    assert code == 0, "what was told is told again"

    guest.monitor("device_del nic")
    guest.run("sleep 8")  # the button of a hot-plug slot takes five seconds
    checks, code = guest.validate("host.inventory")
    assert code == 3
    expect(one(checks, "host.inventory", "pci"), "fail", "is gone")


def main():
    ff, kernel = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for tool in ("qemu-system-x86_64", "busybox", "cpio"):
        if shutil.which(tool) is None:
            skip(f"there is no {tool}; ./bootstrap build installs it")
    if not (kernel / "order.devices").exists():
        skip(f"no kernel in {kernel}; ./bootstrap test fetches it")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        make_initrd(work, ff, kernel)
        guest = Guest(work, kernel)
        try:
            healthy(guest)
            broken(guest)
        finally:
            guest.end()
    print("all as it should be")


if __name__ == "__main__":
    main()
