#!/usr/bin/env python3
# A gateway and a client in C, with the library hiredis (hiredis_program.c).
"""usage: serve_kv_hiredis.py FF PART PROGRAM

  hiredis   binary values, pipelines and nested replies, without and with keys

Exits with 77 where something that a part needs is not there.
"""
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left in the tree
from kv_daemon import DEADLINE_S, expect, run, run_part, serve

PROGRAM = sys.argv[3]


def client(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=DEADLINE_S)
    expect(done.stdout, "all is well\n", done.stderr)


def hiredis(folder):
    daemon = serve(f"{folder}/kv")
    client(str(daemon.port))
    daemon.stop()
    state = {"FF_STATE": f"{folder}/state"}
    text = run("up", "--dir", f"{folder}/up", "--storage", "1", "--kv", "--timeout", "4m", **state)
    try:
        port = next(line for line in text.splitlines() if line.startswith("redis ")).split(":")[1]
        with open(f"{folder}/up/kv.key", encoding="utf-8") as file:
            client(port, file.read())
    finally:
        run("down", "--dir", f"{folder}/up", "--purge", "--yes", **state)


if __name__ == "__main__":
    run_part({"hiredis": hiredis})
