#!/usr/bin/env python3
# The Python package between processes: arrays of several kinds, works in flight, what its errors
# say, and where it finds its library.
"""usage: python.py FOLDER, where the package ff and libff.so are"""
import array
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

from polling import until

RANKS = 3


def says(text, call, *arguments, **named):
    import ff
    try:
        call(*arguments, **named)
    except ff.Error as error:
        assert text in str(error), f"'{text}' in '{error}'"
        return error.code
    raise AssertionError(f"no error, where '{text}' was expected")


def shared_bytes():
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if line.split()[1] == "rw-s"]
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def rank_body(comm):
    import ff
    rank = comm.rank
    assert comm.ranks == RANKS and ff.__version__

    floats = array.array("f", [rank + 1.0] * 1001)
    assert comm.allreduce(floats) is floats and floats[1000] == 6
    whole = array.array("i", [rank] * 7)
    out = array.array("i", [0] * 7)
    assert comm.allreduce(whole, op="max", out=out) is out and out[6] == 2 and whole[0] == rank
    assert comm.allreduce(bytes([rank, 1]), out=bytearray(2)) == bytearray([3, 3])
    halves = bytearray(b"\x80\x3f" * 5)  # 1, in bfloat16
    comm.allreduce(halves, dtype="bfloat16")
    assert halves == b"\x40\x40" * 5, halves

    memory = comm.buffer(4096)
    works = []
    for i in range(8):
        part = memory[i * 512:(i + 1) * 512].cast("q")
        part[0] = i + rank
        works.append((i, part, comm.allreduce_async(part)))
    for i, part, work in reversed(works):
        work.wait()
        assert work.wait() is part and part[0] == 3 * i + 3
    del works, part, work
    comm.barrier()
    for i in range(500):  # nobody waits for these, nor refers to their memory
        comm.allreduce_async(array.array("f", [1.0] * 1000))
        comm.allreduce_async(comm.buffer(4096))
        if i % 8 == 0:
            comm.barrier()
    comm.barrier()
    for _ in range(20):  # each is given back when nothing refers to it
        large = comm.buffer(64 << 20)
        large[0] = large[-1] = 1
    # A thread unmaps them, once each rank has heard that they are no more.
    until(lambda: shared_bytes() < 512 << 20,
          says=lambda: f"{shared_bytes() >> 20} MiB of memory are shared")

    pair = comm.split(None if rank == 0 else 3, key=RANKS - rank)  # in reverse order
    if rank == 0:
        assert pair is None
    else:
        assert pair.rank == 2 - rank and pair.ranks == 2
        assert list(pair.allreduce(array.array("f", [rank]))) == [3]
        pair.close()

    gathered = comm.allgather(array.array("d", [rank * 1.5] * 2), array.array("d", [0] * 6))
    assert list(gathered) == [0, 0, 1.5, 1.5, 3, 3]
    mine = comm.reduce_scatter(gathered, array.array("d", [0, 0]), op="avg")
    assert list(mine) == [rank * 1.5] * 2
    sent = array.array("f", [rank] * 3)
    assert comm.broadcast(sent, root=2)[1] == 2
    assert list(comm.reduce(array.array("i", [1]), root=0))[0] == (3 if rank == 0 else 1)

    assert says("no operation", comm.allreduce, floats, op="xor") == 2
    assert says("no type", comm.allreduce, floats, dtype="complex") == 2
    assert says("do not fit", comm.allreduce, floats, out=out) == 2
    assert says("may be written", comm.allreduce, b"12") == 2
    assert says("7 bytes are not a whole number of elements of type float32", comm.allreduce,
                bytearray(7), dtype="float32") == 2
    assert says("overlaps its output", comm.allreduce, memory[:64], out=memory[32:96]) == 2
    if rank > 0:
        assert says("overlaps its output", comm.allgather, memory[:64], memory[:192]) == 2
    comm.allgather(memory[64 * rank:64 * rank + 64], memory[:192])
    assert says("rank 1 (process", comm.allreduce, array.array("f", [0] * (4 + rank % 2))) == 2
    comm.barrier()

    numpy = sys.modules.get("numpy")
    if numpy is not None:
        square = numpy.full((4, 5), rank, dtype="float64")
        assert (comm.allreduce(square, op="sum") == 3).all()
    torch = sys.modules.get("torch")
    if torch is not None:
        tensor = torch.full((4, 5), float(rank), dtype=torch.bfloat16)
        assert (comm.allreduce(tensor) == 3).all()
        assert says("contiguous", comm.allreduce, torch.zeros(4, 4).t()) == 2


def be(rank, job):
    for name in ("numpy", "torch"):  # if they are there
        try:
            __import__(name)
        except ImportError:
            pass
    import ff
    try:
        with ff.Comm(rank, RANKS, job) as comm:
            rank_body(comm)
        assert says("was closed", comm.barrier) == 2
        if rank == 1:
            assert says("rank 0 of this host has not joined", ff.Comm, 1, 2, job + "x",
                        join_seconds=0.05) == 6
            for seconds in (-1, float("nan")):
                assert says("join_seconds is ", ff.Comm, 0, 1, job, join_seconds=seconds) == 2
            with ff.Comm(0, 1, job + "y", float("inf"), 1e30) as alone:
                alone.barrier()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


# ---- where the package finds libff.so


def imported(path, **env):
    """What a new Python says that imports ff from `path` and prints the library it has loaded."""
    text = "import ff._library; print(ff._library.lib._name)"
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env,
                          check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def check_library(built):
    """The places in their order, and errors that name the place, the cause and the next step."""
    library = os.path.join(built, "libff.so")
    assert imported(built, FF_LIBRARY="") == library
    with tempfile.TemporaryDirectory(prefix="ff-python-") as folder:
        tree = os.path.join(folder, "tree")
        bindings = os.path.join(tree, "core/training/bindings")
        shutil.copytree(os.path.join(built, "ff"), os.path.join(bindings, "ff"))
        os.mkdir(os.path.join(tree, "build"))
        in_build, other = os.path.join(tree, "build/libff.so"), os.path.join(folder, "other.so")
        said = imported(bindings, FF_LIBRARY="", LD_LIBRARY_PATH="")
        if said != "libff.so":  # this machine has no ff of its own
            assert said.startswith("ImportError: libff.so cannot be loaded: "), said
            assert in_build in said and "./bootstrap build" in said, said
        shutil.copy(library, other)
        os.symlink(other, os.path.join(folder, "libff.so"))
        assert imported(bindings, FF_LIBRARY="", LD_LIBRARY_PATH=folder) == "libff.so"
        os.symlink(other, in_build)
        assert imported(bindings, FF_LIBRARY="", LD_LIBRARY_PATH=folder) == in_build
        os.symlink(other, os.path.join(bindings, "libff.so"))
        assert imported(bindings, FF_LIBRARY="") == os.path.join(bindings, "libff.so")
        assert imported(bindings, FF_LIBRARY=other) == other
        said = imported(bindings, FF_LIBRARY=folder + "/gone.so")
        assert said.startswith(f"ImportError: FF_LIBRARY={folder}/gone.so cannot be loaded"), said
        said = imported(bindings, FF_LIBRARY="libc.so.6")
        assert "has no function ff_version: it is of another version" in said, said


def check_public_names():
    """What programs may use, and no module's names beside it."""
    import ff
    assert ff.Error.__module__ == "ff"
    for name in ff.__all__:
        assert hasattr(ff, name), name
    modules = {"checkpoint", "collective", "ddp", "kv", "task"}
    public = {name for name in vars(ff) if not name.startswith("_")}
    assert public == set(ff.__all__) | modules, public ^ (set(ff.__all__) | modules)


def main():
    built = os.path.abspath(sys.argv[1])
    sys.path.insert(0, built)
    check_library(built)
    check_public_names()
    job = f"python-{os.getpid()}"
    ranks = [multiprocessing.Process(target=be, args=(rank, job)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    bad = [rank for rank, one in enumerate(ranks) if one.exitcode != 0]
    print(f"ranks that failed: {bad}" if bad else "all ranks are well")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
