#!/usr/bin/env python3
# The command lines of README.md and of the manual pages that people write, run as they stand.
"""Extracts every block of code of README.md and man/*.7 and runs it, in namespaces of its own.

usage: pages.py FF

What a block is stands before it: in a page as a comment (.\\" cluster), in README.md as the
language of the fence, or as an HTML comment (<!-- needs: three machines -->):

  shell      commands without a cluster
  verdict    the same, about this machine, which may be degraded: exit codes 3 and 4 do as well
  cluster    commands with a cluster that `ff up` has started
  alone      commands that start daemons themselves
  python     must be Python
  needs: X   cannot run here
  sketch     commands with programs that are not there: must be bash
  text       no commands

Commands see an empty network but for loopback, folders that are theirs alone (/data, /mnt, $HOME),
and the files that the pages speak of. Exits with 77 where namespaces or FUSE are not allowed.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 120
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork")
KINDS = ("shell", "verdict", "cluster", "alone", "python", "sketch")

# Each in a shell of its own: ff is in the PATH, the working folder is empty.
PREPARE = """
set -euo pipefail
ip link set lo up
for folder in /data /mnt; do mkdir -p $folder; mount -t tmpfs none $folder; done
export HOME=/data/home FF_STATE=/data/state
mkdir -p /mnt/ff /data/work ~/src; cd /data/work
echo 'int main() {}' > ~/src/main.c; cp -r ~/src dataset; cp -r ~/src run7
for name in model optimizer model-0 model-1; do
  python3 "$ROOT/tests/e2e/make_safetensors.py" $name.safetensors 1 7
done
head -c 4096 /dev/zero | tee grad.0.bin > grad.1.bin
"""
CLUSTER = """
ff up --dir /data/ff --mount /mnt/cluster > up.txt
trap 'ff down --dir /data/ff > /dev/null' EXIT
eval "$(sed -n 's/^use it *//p' up.txt)"
"""
ALONE = """
trap 'jobs -p | xargs -r kill; ff down --dir /data/ff > /dev/null 2>&1 || true' EXIT
"""


def unescape(line):
    """A line of a page as troff prints it."""
    for coded, char in (("\\&", ""), ("\\-", "-"), ("\\(aq", "'"), ("\\(ti", "~"), ("\\(ha", "^"),
                        ("\\(ga", "`"), ("\\e", "\\")):
        line = line.replace(coded, char)
    return line


def blocks_of_page(path):
    """Yields (line, kind, text) of each .EX of a manual page."""
    kind = None
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if line.startswith('.\\" '):
            kind = line[4:]
        if line == ".EX":
            end = lines.index(".EE", number)
            yield number, kind, "\n".join(unescape(one) for one in lines[number:end])
            kind = None


def blocks_of_readme(path):
    """Yields (line, kind, text) of each fence of a Markdown file."""
    kind = None
    lines = path.read_text(encoding="utf-8").split("\n")
    number = 0
    while number < len(lines):
        comment = re.fullmatch(r"<!-- (.*) -->", lines[number])
        kind = comment[1] if comment else kind
        if lines[number].startswith("```"):
            end = lines.index("```", number + 1)
            language = lines[number][3:]
            yield number + 1, kind or language, "\n".join(lines[number + 1:end])
            number, kind = end, None
        number += 1


def run(text, kind, ff):
    """What went wrong, or None."""
    if kind == "python":
        compile(text, "block", "exec")
        return None
    if kind == "sketch":
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True,
                              check=False)
        return done.stderr or None
    before = {"shell": "", "verdict": "set +e", "cluster": CLUSTER, "alone": ALONE}[kind] + "\n"
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ff, os.path.join(folder, "ff"))
        env = {"PATH": folder + ":" + os.environ["PATH"], "ROOT": str(ROOT), "LC_ALL": "C.UTF-8"}
        # The init of a process namespace takes all that was started with it when it ends.
        command = [*NAMESPACES, "--mount-proc", "bash", "-c", PREPARE + before + text]
        try:
            done = subprocess.run(command, env=env, text=True, capture_output=True, check=False,
                                  timeout=SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            return f"not done after {SECONDS} s\n{late.stdout}\n{late.stderr}"
    if done.returncode in ((0, 3, 4) if kind == "verdict" else (0,)):
        return None
    return f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def main():
    ff = os.path.realpath(sys.argv[1])
    allowed = subprocess.run([*NAMESPACES, "true"], check=False)
    if allowed.returncode != 0 or not os.path.exists("/dev/fuse"):
        print("skipped: no namespaces, or no /dev/fuse")
        return 77
    failed = ran = left = 0
    for path in [ROOT / "README.md", *sorted((ROOT / "man").glob("*.7"))]:
        blocks = blocks_of_readme if path.suffix == ".md" else blocks_of_page
        for number, kind, text in blocks(path):
            where = f"{path.relative_to(ROOT)}:{number}"
            if kind == "text" or (kind or "").startswith("needs: "):
                print(f"{where}: {kind}, left out")
                left += 1
                continue
            if kind not in KINDS:
                print(f"{where}: what it needs is not said: {kind}")
                failed += 1
                continue
            ran += 1
            wrong = run(text, kind, ff)
            print(f"{where}: {kind}: {wrong or 'well'}", flush=True)
            failed += wrong is not None
    print(f"{ran} blocks ran, {failed} failed, {left} were left out")
    return 1 if failed or ran < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
