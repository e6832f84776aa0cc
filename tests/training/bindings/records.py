#!/usr/bin/env python3
# Records of the Python package: files that a plain reader and writer of FFRecord agree on, batches,
# damage, children of fork and spawn, and torch's DataLoader with an order that can be resumed.
"""usage: records.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import array
import multiprocessing
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import zlib

from checkpoint_torch import SKIPPED, python_with_torch


def says(code, text, call, *arguments, **named):
    import ff
    try:
        call(*arguments, **named)
    except ff.Error as error:
        assert error.code == code and text in str(error), f"{error.code}: '{text}' in '{error}'"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def sample(number):
    return bytes((number * 7 + i) % 251 for i in range(number * 37 % 3000))


def plain_write(path, samples):
    """By the rules of FFRecord alone."""
    begin = 12 + 12 * len(samples)
    offsets = [begin + sum(map(len, samples[:i])) for i in range(len(samples))]
    index = struct.pack(f"<q{len(samples)}I{len(samples)}q", len(samples),
                        *map(zlib.crc32, samples), *offsets)
    with open(path, "wb") as file:
        file.write(struct.pack("<I", zlib.crc32(index)) + index + b"".join(samples))


def plain_read(path):
    with open(path, "rb") as file:
        content = file.read()
    crc, count = struct.unpack_from("<Iq", content)
    begin = 12 + 12 * count
    assert crc == zlib.crc32(content[4:begin])
    sums = struct.unpack_from(f"<{count}I", content, 12)
    offsets = [*struct.unpack_from(f"<{count}q", content, 12 + 4 * count), len(content)]
    samples = [content[offsets[i]:offsets[i + 1]] for i in range(count)]
    assert [zlib.crc32(one) for one in samples] == list(sums) and (not count or offsets[0] == begin)
    return samples


def same_files(ff, folder):
    samples = [sample(i) for i in range(50)]
    plain_write(f"{folder}/plain.ffr", samples)
    with ff.record.FileReader(f"{folder}/plain.ffr") as reader:
        assert reader.n == len(reader) == 50
        order = [49, 0, 7, 7, 13]
        assert reader.read(order) == [samples[i] for i in order]
        assert type(reader.read_one(3)) is bytearray and reader.read([]) == []
        reader.validate()
    says(2, "the reader is closed", reader.read, [1])
    with ff.record.FileWriter(f"{folder}/ours.ffr", 50) as writer:
        for one in samples:
            writer.write_one(one)
    assert plain_read(f"{folder}/ours.ffr") == samples
    with open(f"{folder}/plain.ffr", "rb") as a, open(f"{folder}/ours.ffr", "rb") as b:
        assert a.read() == b.read()
    subprocess.run([sys.argv[2], "record", "verify", folder], check=True, stdout=subprocess.DEVNULL)


def kinds_of_samples(ff, folder):
    path = f"{folder}/kinds.ffr"
    kinds = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], array.array("H", [1, 2]), b"",
             memoryview(bytearray(b"")), memoryview(bytearray(b"abcd")).cast("B", (2, 2))]
    writer = ff.record.FileWriter(path, len(kinds))
    for one in kinds:
        writer.write_one(one)
    writer.close()
    assert plain_read(path) == [memoryview(one).tobytes() for one in kinds]
    says(5, "exists already", ff.record.FileWriter, path, 1)
    says(2, "ends with .ffr", ff.record.FileWriter, f"{folder}/x.bin", 1)
    says(2, "is no number of samples", ff.record.FileWriter, path, -1)


def unfinished(ff, folder):
    path = f"{folder}/unfinished.ffr"
    writer = ff.record.FileWriter(path, 2)
    writer.write_one(b"1")
    says(2, "there are 1 samples, and it was made for 2", writer.close)
    says(2, "the writer is closed", writer.write_one, b"2")
    try:
        with ff.record.FileWriter(path, 1) as writer:
            writer.write_one(b"1")
            raise KeyError("of the program")
    except KeyError:
        pass
    writer = ff.record.FileWriter(path, 1)
    writer.write_one(b"1")
    says(2, "more samples than the 1", writer.write_one, b"2")
    del writer
    assert os.listdir(folder) == []


def damage(ff, folder):
    plain_write(f"{folder}/a.ffr", [b"first", b"second"])
    with open(f"{folder}/a.ffr", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"D")
    reader = ff.record.FileReader([f"{folder}/a.ffr"])
    assert reader.read([0]) == [b"first"]
    says(3, "a.ffr: sample 1 is damaged", reader.read, [0, 1])
    says(3, "a.ffr: sample 1 is damaged", reader.validate)
    assert ff.record.FileReader(f"{folder}/a.ffr", check_data=False).read_one(1) == b"seconD"
    for wrong in (2, -1, 1.5, "1", None):
        says(2, "is no sample: there are 2, from 0", reader.read, [wrong])
    says(1, "No such file", ff.record.FileReader, f"{folder}/none.ffr")
    says(1, "the directory has no file *.ffr", ff.record.FileReader, tempfile.mkdtemp(dir=folder))
    says(2, "no file is named", ff.record.FileReader, [])
    says(2, "contains a zero", ff.record.FileReader, "a\0b")


def child_reads(reader, queue):
    queue.put(bytes(reader.read_one(7)))


def processes_and_threads(ff, folder):
    samples = [sample(i) for i in range(200)]
    plain_write(f"{folder}/a.ffr", samples[:120])
    plain_write(f"{folder}/b.ffr", samples[120:])
    reader = ff.record.FileReader(folder)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=child_reads, args=(reader, queue))
        child.start()
        assert queue.get(timeout=60) == samples[7], method
        child.join()
    wrong = []

    def work(thread):
        for turn in range(30):
            order = [(thread * 31 + turn * 7 + i * 13) % 200 for i in range(20)]
            if reader.read(order) != [samples[i] for i in order]:
                wrong.append(thread)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def batches(ff, folder):
    del folder
    every = ff.record.Batches
    assert list(every(5, 2)) == [[0, 1], [2, 3], [4]]
    assert list(every(5, 2, drop_last=True)) == [[0, 1], [2, 3]]
    for samples, ranks, size in ((1000, 1, 64), (1003, 4, 16), (7, 3, 2), (2, 3, 1), (0, 1, 4)):
        for shuffle in (False, True):
            def epoch(rank, number=3, first_step=0):
                return list(every(samples, size, shuffle, 5, number, rank, ranks,
                                  first_step=first_step))
            of_ranks = [epoch(rank) for rank in range(ranks)]
            seen = sorted(i for one in of_ranks for batch in one for i in batch)
            assert len(seen) == len(set(seen)) == samples // ranks * ranks
            assert len({len(one) for one in of_ranks}) == 1
            for rank in range(ranks):
                one = of_ranks[rank]
                assert len(one) == len(every(samples, size, shuffle, 5, 3, rank, ranks))
                assert epoch(rank, first_step=2) == one[2:]
            if shuffle and samples == 1000:
                assert epoch(0, 4) != of_ranks[0] and epoch(0)[0] != list(range(64))
    says(2, "there is no rank 3 of 3", every, 10, 1, rank=3, ranks=3)


def number_of_bytes(data):
    return len(data)


def loader(ff, folder):
    import torch
    samples = [struct.pack("<q", i) for i in range(500)]
    plain_write(f"{folder}/a.ffr", samples)
    dataset = ff.record.Dataset(folder, lambda data: torch.frombuffer(data, dtype=torch.int64))
    assert dataset[3].tolist() == [3] and [one.item() for one in dataset[[4, 2]]] == [4, 2]
    orders = []
    for workers in (0, 2):
        made = ff.record.DataLoader(dataset, 32, shuffle=True, seed=1, num_workers=workers)
        found = [batch.flatten().tolist() for batch in made]
        assert len(found) == len(made) == 16 and sorted(sum(found, [])) == list(range(500))
        orders.append(found)
    assert orders[0] == orders[1]
    rest = ff.record.DataLoader(dataset, 32, shuffle=True, seed=1, first_step=10)
    assert [batch.flatten().tolist() for batch in rest] == orders[0][10:]
    plain = torch.utils.data.DataLoader(dataset, batch_size=100)  # torch's own batches work, too
    assert [len(batch) for batch in plain] == [100] * 5
    spawned = ff.record.DataLoader(ff.record.Dataset(folder, number_of_bytes), 250, num_workers=1,
                                   multiprocessing_context="spawn")
    assert [batch.tolist() for batch in spawned] == [[8] * 250] * 2


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        python = python_with_torch()
        if python is None:
            print("skipped: no Python here has PyTorch (Debian: python3-torch)")
            return SKIPPED
        return subprocess.run([python, *sys.argv], check=False).returncode
    sys.path.insert(0, sys.argv[1])
    import ff
    failed = []
    for test in (same_files, kinds_of_samples, unfinished, damage, processes_and_threads, batches,
                 loader):
        folder = tempfile.mkdtemp(prefix="ff-records-")
        try:
            test(ff, folder)
            print(f"{test.__name__}: well", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(test.__name__)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
