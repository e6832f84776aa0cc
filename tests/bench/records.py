#!/usr/bin/env python3
# Random batches of samples from FFRecord files, beside the raw disk and a folder of files.
"""The bars of ff.record: batches of samples in random order, cold, in samples a second.

usage: records.py FF FOLDER DIR [--samples 100000] [--bytes 102400] [--batch 64] [--rounds 3]
                  [--seconds 5] [--mount]

FF is build/ff, FOLDER build/python, DIR a folder on the disk to use, with room for all samples
twice, with --mount six times. In each round, in turn: fio, which reads blocks of the same size
anywhere in the files with direct I/O and as many in flight as a batch has samples;
ff.record.FileReader.read() of batches in the order of ff.record.Batches, one after the other, and
with the next four batches being read meanwhile, as by workers of a DataLoader; and one open(),
read() a sample in the same order, as a plain PyTorch Dataset does. The page cache is dropped before
each (run as root). --mount: all but fio on a mount of a cluster that it starts below DIR, too.
Medians; prints a table in Markdown. With --samples 25000 --mount some three minutes on an idle
machine.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def rate_of(batches, read, seconds):
    """Samples a second of read(batch), for some seconds."""
    drop_caches()
    start = time.monotonic()
    count = 0
    for batch in batches:
        read(batch)
        count += len(batch)
        if time.monotonic() - start > seconds:
            break
    return count / (time.monotonic() - start)


def ahead(batches, read, count=4):
    """Each batch, when it has been read; threads read the next ones, as workers of a DataLoader."""
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        reading = collections.deque()
        for batch in batches:
            reading.append((batch, threads.submit(read, batch)))
            if len(reading) > count:
                done, result = reading.popleft()
                result.result()
                yield done


def raw(paths, options):
    """What fio reads anywhere in the files, in samples a second."""
    drop_caches()
    block = options.bytes // 4096 * 4096
    done = subprocess.run(
        ["fio", "--name=raw", f"--filename={':'.join(paths)}", "--readonly", "--rw=randread",
         "--direct=1", f"--bs={block}", "--ioengine=io_uring",
         f"--iodepth={options.batch}", "--time_based",
         f"--runtime={options.seconds}", "--file_service_type=random",
         "--output-format=json"],
        check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["jobs"][0]["read"]["iops"]


def make_files(folder, options):
    """Incompressible samples, as files of a folder with 1,000 each."""
    noise = random.Random(1).randbytes(2 * options.bytes)
    for number in range(options.samples):
        if number % 1000 == 0:
            os.makedirs(f"{folder}/{number // 1000:04d}")
        at = number * 97 % options.bytes
        with open(f"{folder}/{number // 1000:04d}/{number % 1000:03d}", "wb") as file:
            file.write(noise[at:at + options.bytes])


def compare(ff, files, packed, options, figures, where):
    paths = sorted(f"{packed}/{name}" for name in os.listdir(packed))
    for turn in range(options.rounds):
        if where == "disk":
            figures.setdefault(("raw", where), []).append(raw(paths, options))
        batches = ff.record.Batches(options.samples, options.batch, True, epoch=turn)
        with ff.record.FileReader(packed) as reader:
            figures.setdefault(("ff.record", where), []).append(
                rate_of(batches, reader.read, options.seconds))
            figures.setdefault(("ff.record, 4 batches ahead", where), []).append(
                rate_of(ahead(batches, reader.read), lambda batch: None, options.seconds))

        def plain(batch):
            for number in batch:
                with open(f"{files}/{number // 1000:04d}/{number % 1000:03d}", "rb") as file:
                    file.read()
        figures.setdefault(("files", where), []).append(rate_of(batches, plain, options.seconds))


def on_mount(ff, options, figures):
    """Packs the same files into a cluster, and reads there."""
    home, mount = f"{options.dir}/cluster", f"{options.dir}/mnt"
    subprocess.run([options.ff, "up", "--dir", home, "--mount", mount], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        make_files(f"{mount}/files", options)
        subprocess.run([options.ff, "record", "pack", f"{options.dir}/files", f"{mount}/packed"],
                       check=True, stdout=subprocess.DEVNULL)
        compare(ff, f"{mount}/files", f"{mount}/packed", options, figures, "mount")
    finally:
        subprocess.run([options.ff, "down", "--dir", home, "--purge"], check=True,
                       stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ff", type=os.path.realpath)
    parser.add_argument("folder")
    parser.add_argument("dir", type=os.path.realpath)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=102_400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--mount", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, os.path.realpath(options.folder))
    import ff
    figures = {}
    try:
        make_files(f"{options.dir}/files", options)
        start = time.monotonic()
        subprocess.run([options.ff, "record", "pack", f"{options.dir}/files",
                        f"{options.dir}/packed"], check=True, stdout=subprocess.DEVNULL)
        print(f"packed {options.samples} files in {time.monotonic() - start:.1f} s")
        compare(ff, f"{options.dir}/files", f"{options.dir}/packed", options, figures, "disk")
        if options.mount:
            on_mount(ff, options, figures)
    finally:
        for name in ("files", "packed"):
            shutil.rmtree(f"{options.dir}/{name}", ignore_errors=True)
    print("| reader | where | samples a second | MiB/s |\n|---|---|---|---|")
    for (reader, where), rates in figures.items():
        rate = statistics.median(rates)
        print(f"| {reader} | {where} | {rate:,.0f} | {rate * options.bytes / (1 << 20):,.0f} |")


if __name__ == "__main__":
    main()
