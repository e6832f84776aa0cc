#!/usr/bin/env python3
# Everything that needs a GPU, on a machine with one: operations and saves on device memory with
# NVIDIA's own driver, the checks of `ff validate`, and the figures of RESULTS.md. Without a GPU it
# says so, and exits with 77.
"""usage: run.py BUILD [--mib N] [--save-gib N] [--rounds N] [--store FOLDER]"""
import argparse
import ctypes
import datetime
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time

import real_driver

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
BINDINGS = os.path.join(TREE, "tests/training/bindings")
BLOCK = 256 << 20  # of a save, and the most that a copy moves at once
BAR_ALLREDUCE, BAR_SAVE, BAR_BLOCKED = 0.8, 1.2, 0.1


def in_process(body, *arguments):
    """The result of a function in a process of its own: the driver does not survive a fork."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(body, arguments)


def python_package(build):
    sys.path.insert(0, os.path.join(build, "python"))
    import ff
    from ff import _library
    return ff, _library


def on_device():
    driver = real_driver.RealDriver()
    context = driver.fake_cuda_context()
    return driver, context


# ---- copies alone


def time_copies(size, rounds):
    """Seconds for `size` bytes from the device, to it, and both ways at once: medians."""
    driver, context = on_device()
    size = min(size, BLOCK)
    up, down = driver.pin(size), driver.pin(size)
    there = [driver.fake_cuda_alloc(context, size) for _ in range(2)]
    streams = [driver.fake_cuda_stream(context) for _ in range(2)]

    def took(from_device, to_device):
        begun = time.monotonic()
        if from_device:
            driver.to_host(down, there[0], size, streams[0])
        if to_device:
            driver.to_device(there[1], up, size, streams[1])
        for stream in streams:
            driver.fake_cuda_synchronize(stream)
        return time.monotonic() - begun
    ways = [(True, False), (False, True), (True, True)]
    for way in ways:
        took(*way)
    return [statistics.median(took(*way) for _ in range(rounds)) / size for way in ways]


# ---- two ranks on one GPU


def reduce_as_rank(build, rank, job, size, rounds, pipe):
    ff, library = python_package(build)
    driver, context = on_device()
    stream = driver.fake_cuda_stream(context)
    count = size // 4
    memory = driver.fake_cuda_alloc(context, size)
    driver.fill(memory, 0, size, stream)
    times = []
    with ff.Comm(rank, 2, job) as comm:
        number = ctypes.c_uint64()
        for _ in range(rounds + 2):
            driver.fake_cuda_synchronize(stream)
            comm.barrier()
            begun = time.monotonic()
            library.check(library.lib.ff_allreduce_on_async(
                comm._of(), memory, memory, count, 0, 0, stream, ctypes.byref(number)))
            library.check(library.lib.ff_wait(comm._of(), number.value))
            driver.fake_cuda_synchronize(stream)
            times.append(time.monotonic() - begun)
        comm.barrier()
    pipe.send(times[2:])  # the first ones pin memory


def time_allreduce(build, size, rounds):
    """Seconds of an allreduce of two ranks: the slower one of each round, median."""
    context = multiprocessing.get_context("spawn")
    job, ranks, pipes = f"gpu-{os.getpid()}-{os.urandom(4).hex()}", [], []
    for rank in range(2):
        mine, other = context.Pipe(False)
        ranks.append(context.Process(target=reduce_as_rank,
                                     args=(build, rank, job, size, rounds, other)))
        pipes.append(mine)
        ranks[-1].start()
        other.close()
    try:
        times = [pipe.recv() for pipe in pipes]
    except EOFError:
        raise AssertionError("a rank of the allreduce has failed: see above") from None
    finally:
        for one in ranks:
            one.join()
    return statistics.median(map(max, zip(*times)))


# ---- saves


def time_saves(build, store, size, rounds):
    """Of a save of device memory: seconds until its stream may go on and those for which the
    program was blocked, and seconds of the copies alone; medians without the first save."""
    ff, library = python_package(build)
    lib, check = library.lib, library.check
    driver, context = on_device()
    stream = driver.fake_cuda_stream(context)
    sizes = [min(BLOCK, size - at) for at in range(0, size, BLOCK)]
    blocks = [driver.fake_cuda_alloc(context, one) for one in sizes]
    pinned = driver.pin(max(sizes))
    saver = ctypes.c_void_p()
    check(lib.ff_saver_open(ctypes.byref(saver)))
    until_copied, blocked, alone = [], [], []
    for step in range(rounds + 1):
        for block, one in zip(blocks, sizes):
            driver.fill(block, step + 1, one, stream)
        driver.fake_cuda_synchronize(stream)
        begun = time.monotonic()
        for block, one in zip(blocks, sizes):
            driver.to_host(pinned, block, one, stream)
        driver.fake_cuda_synchronize(stream)
        alone.append(time.monotonic() - begun)
        begun = time.monotonic()
        save_blocks(library, saver, store, step + 1, blocks, sizes, stream)
        blocked.append(time.monotonic() - begun)
        driver.fake_cuda_synchronize(stream)
        until_copied.append(time.monotonic() - begun)
        check(lib.ff_save_wait(saver, ctypes.byref(library.Saved())))
    lib.ff_saver_close(saver, 0)
    loaded = ff.load(store, step=rounds + 1)
    for name, one in loaded.items():
        assert bytes(one[:16]) == bytes([rounds + 1]) * 16, f"{name} was not saved as it was"
    return [statistics.median(times[1:]) for times in (until_copied, blocked, alone)]


def save_blocks(library, saver, store, step, blocks, sizes, stream):
    lib, check = library.lib, library.check
    options = library.SaveOptions(ctypes.sizeof(library.SaveOptions), store.encode(), None, step,
                                  None, 0, 1, None, 0, True, False)
    tensors = (library.Tensor * len(blocks))()
    shapes = [(ctypes.c_uint64 * 1)(size) for size in sizes]
    for number, (tensor, shape, size) in enumerate(zip(tensors, shapes, sizes)):
        tensor.name, tensor.dtype = f"block{number:03}".encode(), b"U8"
        tensor.shape, tensor.dimensions, tensor.bytes = shape, 1, size
    places = (ctypes.c_void_p * len(blocks))()
    check(lib.ff_save_begin(saver, ctypes.byref(options), tensors, len(blocks), None, 0, places))
    for place, block, size in zip(places, blocks, sizes):
        check(lib.ff_save_copy_on(saver, place, block, size, stream))
    check(lib.ff_save_start(saver))


# ---- tests and checks


def run_tests(build):
    """Rows of the table: what has passed."""
    rows = []
    for script, needs in (("device.py", None), ("torch_device.py", "torch")):
        ended = subprocess.run([sys.executable, os.path.join(BINDINGS, script),
                                os.path.join(build, "python"), "real"], timeout=600)
        assert ended.returncode in (0, SKIPPED), f"{script} has failed: see above"
        what = "passed" if ended.returncode == 0 else f"skipped: no {needs}"
        rows.append((f"tests/training/bindings/{script} on the device", "passes", what, ""))
    return rows


def run_checks(build, folder):
    """The findings of the GPU checks; a failed one ends the run."""
    environment = dict(os.environ, FF_STATE=folder)
    ended = subprocess.run([os.path.join(build, "ff"), "validate", "--only", "gpu", "--force",
                            "--json"], env=environment, stdout=subprocess.PIPE, text=True,
                           timeout=600)
    data = json.loads(ended.stdout)["data"]
    rows, bad = [], []
    for one in data["checks"]:
        if one["check"] in ("gpu.memory", "gpu.gemm", "gpu.copy"):
            rows.append((f"{one['name']} {one['part']}", one["expected"], one["verdict"],
                         one["found"]))
        if one["verdict"] == "fail":
            bad.append(f"{one['name']} {one['part']}: {one['found']}")
    assert not bad, "\n".join(bad)
    return rows


def verdict(ratio, bar, at_least):
    return "met" if (ratio >= bar) == at_least else "MISSED"


def measure(build, options, store):
    size, save = options.mib << 20, int(options.save_gib * (1 << 30))
    from_device, to_device, both = in_process(time_copies, size, options.rounds)
    took = time_allreduce(build, size, options.rounds)
    bound = 2 * size * both  # both ranks, both ways at once
    gigabytes = [1 / one / 1e9 for one in (from_device, to_device, 2 * both)]
    yield ("copies alone: from the device, to it, each way of both at once", "",
           "", "{:.1f}, {:.1f}, {:.1f} GB/s".format(gigabytes[0], gigabytes[1], 2 * gigabytes[2]))
    yield (f"allreduce of {options.mib} MiB of 2 ranks on one GPU / the copies alone",
           f"≥ {BAR_ALLREDUCE}", f"{bound / took:.2f}",
           f"{verdict(bound / took, BAR_ALLREDUCE, True)}: {1e3 * took:.1f} of "
           f"{1e3 * bound:.1f} ms")
    copied, blocked, alone = in_process(time_saves, build, store, save, options.rounds)
    yield (f"save of {options.save_gib:g} GiB: until it is copied / the copies alone",
           f"≤ {BAR_SAVE}", f"{copied / alone:.2f}",
           f"{verdict(copied / alone, BAR_SAVE, False)}: {copied:.3f} of {alone:.3f} s")
    yield ("the program is blocked by a save after the first", f"< {BAR_BLOCKED} s",
           f"{blocked:.3f} s", verdict(blocked, BAR_BLOCKED, False))


def build_tree():
    build = os.path.join(TREE, "build")
    if not os.path.exists(os.path.join(build, "ff")):
        subprocess.run([os.path.join(TREE, "bootstrap"), "build"], check=True)
    return build


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", nargs="?", help="folder with ff, libff.so and python/")
    parser.add_argument("--mib", type=int, default=256, help="of an allreduce")
    parser.add_argument("--save-gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", help="where saves go (default: a folder in memory)")
    options = parser.parse_args()
    missing = real_driver.has_device()
    if missing:
        print(f"no GPU: {missing}")
        return SKIPPED
    build = os.path.abspath(options.build) if options.build else build_tree()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=options.store or memory) as folder:
        rows = run_tests(build)
        rows += run_checks(build, os.path.join(folder, "state"))
        rows += measure(build, options, os.path.join(folder, "store"))
    name = in_process(device_name)
    print(f"\n{name}, {datetime.date.today()}, {os.cpu_count()} cores\n")
    print("| work | bar | measured | |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 0


def device_name():
    return on_device()[0].name()


if __name__ == "__main__":
    sys.exit(main())
