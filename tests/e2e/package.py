#!/usr/bin/env python3
# The Debian package, from the build folder to a bare Debian 12 and off it again: lintian, what an
# operator and a program do with it there, and that nothing stays when it is purged.
"""usage: package.py BUILD, a folder of the release build

Needs root, lintian and mmdebstrap; the bare system comes from Debian's archive once, and is kept in
$FF_CACHE/package-root.tar (default: .cache/ of the tree) for the next time. Exits with 77 where it
cannot be made.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
LIBRARIES = "usr/lib/x86_64-linux-gnu"
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
# Where the system below writes for itself: dpkg, ldconfig, adduser, logs.
OWN = ("var/lib/dpkg/status", "var/lib/dpkg/available", "var/lib/dpkg/lock", "var/log/",
       "var/cache/ldconfig/", "etc/ld.so.cache", "etc/shadow-", "etc/gshadow-", "run/adduser")

# $1: the root folder, $2: what to run there. Nothing but loopback, and no program of it stays.
ENTER = """
set -e
ip link set lo up
mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; mount --rbind /sys "$1/sys"
mount -t tmpfs none "$1/mnt"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 HOME=/mnt \
  FF_STATE=/mnt/state bash -euc "$2"
"""

PROGRAM = """
#include <ff/ff.h>
#include <hf3fs/hf3fs_usrbio.h>
#include <hf3fs_usrbio.h>
#include <stdio.h>

int main(void) {
  printf("%s %d\\n", ff_version(), hf3fs_is_hf3fs(0));
  return 0;
}
"""

CLUSTER = """
cd /mnt
ff up --dir /mnt/ff > up.txt
trap 'ff down --dir /mnt/ff > /dev/null' EXIT
eval "$(sed -n 's/^use it *//p' up.txt)"
seq 1000000 > written
ff fs cp written ff:///written
ff fs cat /written | cmp - written
"""

PYTHON = """
import ff
ff.save_async({"weights": bytearray(b"1234"), "step": 7}, step=7, store="/mnt/store").wait()
assert ff.load("/mnt/store")["step"] == 7
with ff.Comm(0, 1, "package") as comm:
    assert comm.allreduce(bytearray(b"12")) == b"12"
print(ff.__version__, ff.__file__)
"""


class Skipped(Exception):
    pass


def run(*words, check=True, **named):
    """Its output; a failure shows all of it."""
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, check=False, **named)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def inside(root, script):
    return run(*NAMESPACES, "bash", "-c", ENTER, "enter", root, script, timeout=120)


def look_around():
    """Whether this machine can do it."""
    if os.geteuid() != 0:
        raise Skipped("not root, who alone may make a root folder of Debian")
    for tool in ("cpack", "lintian", "mmdebstrap", "gcc", "ip"):
        if shutil.which(tool) is None:
            raise Skipped(f"there is no {tool} here: ./bootstrap build installs it")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode != 0:
        raise Skipped("this machine allows no namespaces")


def sources():
    """The archives of Debian that this machine takes its packages from."""
    said = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
               "Created-By: Packages", "Origin: Debian")
    keys = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
    lines = {f"deb {keys}{line}" for line in said.splitlines() if line.endswith(" main")}
    return sorted(lines) or [f"deb {keys}http://deb.debian.org/debian bookworm main"]


def make_root(root):
    """A bare Debian 12 with Python, in the folder `root`."""
    kept = pathlib.Path(os.environ.get("FF_CACHE") or ROOT / ".cache") / "package-root.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(f".{os.getpid()}.tar")
        try:
            run("timeout", "--kill-after=30", "400", "mmdebstrap", "--mode=root",
                "--variant=minbase", "--include=python3", '--aptopt=Acquire::http::Timeout "20"',
                "bookworm", made, *sources())
            made.rename(kept)
        except AssertionError as error:
            lines = str(error).strip().splitlines()
            errors = [line for line in lines if line.startswith("E:")] or lines[-1:]
            why = "not done in 400 s" if lines[0].endswith(" 124") else errors[0]
            raise Skipped(f"mmdebstrap cannot make a Debian 12 here: {why}") from None
        finally:
            made.unlink(missing_ok=True)
    run("tar", "-xf", kept, "-C", root)


def paths(root):
    """Everything there, but for what the system writes for itself."""
    found = set()
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        found.update(os.path.normpath(os.path.join(below, name)) for name in folders + files)
    return {path for path in found if not path.startswith(OWN)}


def check_lint(package):
    said = run("lintian", "--fail-on", "error,warning", "--tag-display-limit", "0", package)
    assert not [line for line in said.splitlines() if line[:2] in ("E:", "W:")], said


def check_files(root):
    """Manual pages, completions, units and licences, each where Debian looks for it."""
    for page in (ROOT / "man").glob("*.[17]"):
        packed = f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz"
        assert run("gzip", "-dc", packed, cwd=root) == page.read_text(encoding="utf-8"), packed
    for name in ("bash-completion/completions/ff", "zsh/vendor-completions/_ff",
                 "fish/vendor_completions.d/ff.fish", "doc/ff/copyright",
                 "doc/ff/changelog.Debian.gz", "doc/ff/libraries/libssl-dev",
                 "doc/ff/ff.spdx.json",
                 "man/man8/mount.ff.8.gz"):
        assert os.path.exists(f"{root}/usr/share/{name}"), name
    units = list(pathlib.Path(root, "usr/lib/systemd/system").glob("ff-*.service"))
    assert len(units) >= 5, units
    for unit in units:
        program = "systemd-sysusers" if unit.name == "ff-users.service" else "/usr/bin/ff"
        assert f"\nExecStart={program} " in unit.read_text(encoding="utf-8"), unit
    accounts = pathlib.Path(root, "etc/passwd").read_text(encoding="utf-8").splitlines()
    users = {account.split(":")[0] for account in accounts}
    assert {"ff", "ff-storage"} <= users, users
    wanted = pathlib.Path(root, "etc/systemd/system").rglob("ff-*")
    assert not list(wanted), "a service is enabled"


def check_work(root, version):
    """What operators and programs do with it."""
    said = inside(root, "ff --version; mount.ff --help")
    assert said.startswith(f"ff {version} (") and "mount" in said, said
    program = pathlib.Path(root, "mnt.c")
    program.write_text(PROGRAM, encoding="ascii")
    run("gcc", "-Wall", "-Werror", "-I", f"{root}/usr/include", program, "-o", f"{root}/program",
        "-L", f"{root}/{LIBRARIES}", "-lff", "-lhf3fs_api_shared")
    needed = run("readelf", "-d", f"{root}/program")
    assert "[libff.so.1]" in needed and "[libhf3fs_api_shared.so]" in needed, needed
    assert inside(root, "/program") == f"{version} 0\n"
    program.unlink()
    os.unlink(f"{root}/program")
    said = inside(root, f"python3 -c '{PYTHON}'; ff checkpoint verify --store /mnt/store --all")
    assert f"{version} /usr/lib/python3/dist-packages/ff/__init__.py" in said, said
    inside(root, CLUSTER)


def check_wheel(build, root):
    """The rings for Python alone, for those who install no package of Debian."""
    run("cmake", "--build", build, "--target", "wheel")
    wheel, = pathlib.Path(build).glob("hf3fs_py_usrbio-*.whl")
    run("/usr/bin/python3", "-m", "pip", "install", "--no-index", "--no-deps", "--target",
        f"{root}/wheel", wheel)
    said = inside(root, "cd /wheel && python3 -c 'from hf3fs_fuse import io; "
                        "print(io.h3fio.__file__, io.extract_mount_point(\"/wheel\"))'")
    assert said.startswith("/wheel/hf3fs_py_usrbio.abi3.so "), said
    shutil.rmtree(f"{root}/wheel")


def check(build, folder):
    run("cpack", "--config", f"{build}/CPackConfig.cmake", "-B", folder)
    package, = pathlib.Path(folder).glob("ff_*_amd64.deb")
    version = package.name.split("_")[1].split("-")[0]
    check_lint(package)
    print("the package is made, and lintian has nothing to say", flush=True)
    root = f"{folder}/root"
    os.mkdir(root)
    make_root(root)
    wants = f"{root}/etc/systemd/system/multi-user.target.wants"
    os.makedirs(wants, exist_ok=True)
    before = paths(root)
    shutil.copy(package, f"{root}/ff.deb")
    inside(root, "dpkg --install /ff.deb")
    check_files(root)
    check_work(root, version)
    inside(root, "dpkg --install /ff.deb")  # an upgrade
    check_work(root, version)
    print("the package works in a bare Debian 12, again after an upgrade", flush=True)
    check_wheel(build, root)
    print("the wheel of the rings works there, too", flush=True)
    # As `systemctl enable` does it.
    os.symlink("/lib/systemd/system/ff-serve-meta.service", f"{wants}/ff-serve-meta.service")
    os.symlink("/lib/systemd/system/ff-up@.service", f"{wants}/ff-up@data-ff.service")
    inside(root, "dpkg --purge ff; ! dpkg --status ff")
    os.unlink(f"{root}/ff.deb")
    left, gone = paths(root) - before, before - paths(root)
    assert not left and not gone, f"left behind: {sorted(left)}; gone: {sorted(gone)}"
    print("nothing is left of it once it is purged")


def main():
    build = os.path.abspath(sys.argv[1])
    try:
        look_around()
        with tempfile.TemporaryDirectory(prefix="ff-package-") as folder:
            check(build, folder)
    except Skipped as why:
        print(f"skipped: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
