#!/usr/bin/env python3
# A second reader of checkpoint stores, written from FORMAT.md alone, that checks ours.
"""Reads checkpoint stores of ff; written from checkpoint/format/FORMAT.md alone, to prove the page.

    reader.py STORE                   check everything in the store
    reader.py STORE RUN@STEP DEST     check one checkpoint and restore it to DEST (absent)

Checked: the seals of ff-store.json and of every index line, the digest of each index and of its
content, the counts of its end line, the heads, lengths, paddings, CRC32C and digests (XXH3-128 in
plain Python, SHA-256) of the chunks it names, and the CRC32C of every extent.

Not done: the standard library has no zstd, so of compressed chunks only head and stored bytes are
checked; they are counted, and files that need them are not restored. Uncommitted shards, leases
and the trash are not looked at, except for chunks that a prune has just moved there.

Exit: 0 all good, 1 no store or no such checkpoint, 2 wrong usage, 3 damage, 4 compressed chunks
were in the way of a restore.
"""

import collections
import hashlib
import json
import os
import struct
import sys

CHUNK_BYTES = 4 << 20
HEAD_BYTES = 4096
FORMAT_VERSION = 1
LINE_MAX = 128 << 20


class Damage(Exception):
    """Stored bytes are not what they should be."""


class Missing(Exception):
    """There is no such store or checkpoint, or it is newer than this reader."""


class Compressed(Exception):
    """A chunk that this reader cannot unpack."""


# --- CRC32C: polynomial 0x1EDC6F41, reflected (0x82F63B78), initial value and final xor all ones


def _byte_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = _byte_table()
PLANES = [bytes(value >> 8 * i & 255 for value in TABLE) for i in range(4)]
LANE = 1024  # bytes


def _after_a_lane_of_zeros():
    """Tables, one a byte of the register, of what the register becomes."""
    bits = []
    for bit in range(32):
        value = 1 << bit
        for _ in range(LANE):
            value = TABLE[value & 255] ^ value >> 8
        bits.append(value)
    tables = []
    for first in range(0, 32, 8):
        table = [0]
        for bit in bits[first : first + 8]:
            table += [value ^ bit for value in table]
        tables.append(table)
    return tables


SHIFT = _after_a_lane_of_zeros()


def crc32c(data):
    """
    Byte by byte Python is far too slow. The register after a string is linear in the register
    before it, so lanes of 1 KiB are worked on at once, from zero, each byte of all their registers
    in one long integer; then their registers are joined.
    """
    lanes = len(data) // LANE
    crc = 0xFFFFFFFF
    if lanes:
        planes = [0, 0, 0, 0]  # byte i of every lane's register
        for at in range(LANE):
            column = int.from_bytes(data[at : lanes * LANE : LANE], "little")
            index = (planes[0] ^ column).to_bytes(lanes, "little")
            steps = [int.from_bytes(index.translate(plane), "little") for plane in PLANES]
            planes = [steps[0] ^ planes[1], steps[1] ^ planes[2], steps[2] ^ planes[3], steps[3]]
        columns = [plane.to_bytes(lanes, "little") for plane in planes]
        for lane in zip(*columns):
            crc = (
                SHIFT[0][crc & 255]
                ^ SHIFT[1][crc >> 8 & 255]
                ^ SHIFT[2][crc >> 16 & 255]
                ^ SHIFT[3][crc >> 24]
                ^ int.from_bytes(lane, "little")
            )
    for value in data[lanes * LANE :]:
        crc = TABLE[(crc ^ value) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# --- XXH3, 128 bits, seed 0, default secret (the xxHash specification)

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def _u32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def _fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def _avalanche3(value):
    value ^= value >> 37
    value = value * 0x165667919E3779F9 & M64
    return value ^ value >> 32


def _avalanche64(value):
    value ^= value >> 33
    value = value * P64[1] & M64
    value ^= value >> 29
    value = value * P64[2] & M64
    return value ^ value >> 32


def _short(data):
    """Up to 16 bytes: (high, low)."""
    size = len(data)
    if size == 0:
        low = _avalanche64(_u64(SECRET, 64) ^ _u64(SECRET, 72))
        return _avalanche64(_u64(SECRET, 80) ^ _u64(SECRET, 88)), low
    if size <= 3:
        low = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        swapped = int.from_bytes(low.to_bytes(4, "little"), "big")
        high = (swapped << 13 | swapped >> 19) & M32
        low ^= _u32(SECRET, 0) ^ _u32(SECRET, 4)
        high ^= _u32(SECRET, 8) ^ _u32(SECRET, 12)
        return _avalanche64(high), _avalanche64(low)
    if size <= 8:
        value = _u32(data, 0) + (_u32(data, size - 4) << 32)
        value ^= _u64(SECRET, 16) ^ _u64(SECRET, 24)
        product = value * (P64[0] + (size << 2))
        low, high = product & M64, product >> 64
        high = (high + (low << 1)) & M64
        low ^= high >> 3
        low ^= low >> 35
        low = low * 0x9FB21C651E98DF25 & M64
        return _avalanche3(high), low ^ low >> 28
    first, last = _u64(data, 0), _u64(data, size - 8)
    flip_low = _u64(SECRET, 32) ^ _u64(SECRET, 40)
    flip_high = _u64(SECRET, 48) ^ _u64(SECRET, 56)
    product = (first ^ last ^ flip_low) * P64[0]
    low, high = product & M64, product >> 64
    low = (low + (size - 1 << 54)) & M64
    last ^= flip_high
    high = (high + last + (last & M32) * (P32[1] - 1)) & M64
    low ^= int.from_bytes(high.to_bytes(8, "little"), "big")
    product = low * P64[1]
    high = ((product >> 64) + high * P64[1]) & M64
    return _avalanche3(high), _avalanche3(product & M64)


def _middle(data):
    """17 to 240 bytes: (high, low)."""
    size = len(data)
    low, high = size * P64[0] & M64, 0

    def mix16(at, secret):
        low_key, high_key = _u64(SECRET, secret), _u64(SECRET, secret + 8)
        return _fold(_u64(data, at) ^ low_key, _u64(data, at + 8) ^ high_key)

    def mix32(one, two, secret):
        nonlocal low, high
        low = (low + mix16(one, secret)) & M64
        low ^= (_u64(data, two) + _u64(data, two + 8)) & M64
        high = (high + mix16(two, secret + 16)) & M64
        high ^= (_u64(data, one) + _u64(data, one + 8)) & M64

    if size <= 128:
        for i in reversed(range((size - 1) // 32 + 1)):
            mix32(16 * i, size - 16 * (i + 1), 32 * i)
    else:
        for at in range(0, 128, 32):
            mix32(at, at + 16, at)
        low, high = _avalanche3(low), _avalanche3(high)
        for at in range(128, size // 32 * 32, 32):
            mix32(at, at + 16, at - 125)
        mix32(size - 16, size - 32, 103)
    mixed = (low * P64[0] + high * P64[3] + size * P64[1]) & M64
    return -_avalanche3(mixed) & M64, _avalanche3((low + high) & M64)


def _long(data):
    """More than 240 bytes: (high, low)."""
    size = len(data)
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    keys = [struct.unpack_from("<8Q", SECRET, 8 * i) for i in range(17)]

    def accumulate(at, key):
        for i, value in enumerate(struct.unpack_from("<8Q", data, at)):
            mixed = value ^ key[i]
            acc[i ^ 1] = (acc[i ^ 1] + value) & M64
            acc[i] = (acc[i] + (mixed & M32) * (mixed >> 32)) & M64

    blocks = (size - 1) // 1024
    for block in range(blocks):
        for i in range(16):
            accumulate(1024 * block + 64 * i, keys[i])
        for i, key in enumerate(keys[16]):
            acc[i] = ((acc[i] ^ acc[i] >> 47 ^ key) * P32[0]) & M64
    for i in range((size - 1 - 1024 * blocks) // 64):
        accumulate(1024 * blocks + 64 * i, keys[i])
    accumulate(size - 64, struct.unpack_from("<8Q", SECRET, 121))

    def merge(secret, start):
        key = struct.unpack_from("<8Q", SECRET, secret)
        for i in range(0, 8, 2):
            start += _fold(acc[i] ^ key[i], acc[i + 1] ^ key[i + 1])
        return _avalanche3(start & M64)

    return merge(117, ~(size * P64[1]) & M64), merge(11, size * P64[0] & M64)


def xxh128(data):
    """The canonical form: 16 bytes, most significant first."""
    parts = _short(data) if len(data) <= 16 else _middle(data) if len(data) <= 240 else _long(data)
    return (parts[0] << 64 | parts[1]).to_bytes(16, "big")


def sha256(data):
    return hashlib.sha256(data).digest()


DIGESTS = {"xxh128": (1, xxh128), "sha256": (2, sha256)}  # kind byte in chunk heads, function


# --- Sealed lines


def open_seal(line, where):
    """The object of a sealed line (bytes, without its newline)."""
    body, tail = line[:-18], line[-18:]
    if tail != b',"crc":"%08x"}' % crc32c(body):
        raise Damage(where + ": the line's CRC32C does not match")
    return json.loads(line.decode("utf-8"))


# --- The store


Head = collections.namedtuple(
    "Head", "magic crc codec kind zero raw stored raw_crc stored_crc digest"
)


class Store:
    def __init__(self, path):
        self.path = path
        name = os.path.join(path, "ff-store.json")
        try:
            with open(name, "rb") as file:
                text = file.read()
        except OSError as error:
            raise Missing("%s: not a store (%s)" % (path, error.strerror))
        if not text.endswith(b"\n"):
            raise Damage(name + ": cut short")
        about = open_seal(text[:-1], name)
        if about["ff_store"] > FORMAT_VERSION:
            raise Missing("%s: format %d is newer than this reader" % (name, about["ff_store"]))
        self.id = about["id"]
        self.digest = about["digest"]
        self.checked = set()  # names of good chunks
        self.compressed = set()
        self.last = (None, b"")  # the chunk read last: small tensors share one

    def checkpoints(self):
        """All committed checkpoints: (run, step)."""
        runs = os.path.join(self.path, "runs")
        for run in sorted(os.listdir(runs)):
            steps = []
            for step in os.listdir(os.path.join(runs, run)):
                if step.isdigit() and os.path.exists(self.index_path(run, step)):
                    steps.append(int(step))
            for step in sorted(steps):
                yield run, step

    def index_path(self, run, step):
        return os.path.join(self.path, "runs", run, str(step), "index.jsonl")

    def chunk(self, name, kind):
        """The data of a chunk, every check made on first sight."""
        if self.last[0] == name:
            return self.last[1]
        text = self._chunk_file(name)
        if len(text) < HEAD_BYTES:
            raise Damage("chunk %s: shorter than a head" % name)
        head = Head._make(struct.unpack("<8sIBBHQQII32s", text[:72]))
        data = text[HEAD_BYTES : HEAD_BYTES + head.stored]
        if name not in self.checked:
            self._check(name, kind, text, head, data)
            self.checked.add(name)
        if head.codec != 0:
            self.compressed.add(name)
            raise Compressed(name)
        self.last = (name, data)
        return data

    def _chunk_file(self, name):
        for path in ("chunks/%s/%s" % (name[:2], name), "trash/" + name):
            try:
                with open(os.path.join(self.path, path), "rb") as file:
                    return file.read(HEAD_BYTES + CHUNK_BYTES + 1)
            except FileNotFoundError:
                pass
        raise Damage("chunk %s: the file is missing" % name)

    def _check(self, name, kind, text, head, data):
        def require(good, what):
            if not good:
                raise Damage("chunk %s: %s" % (name, what))

        kind_byte, function = DIGESTS[kind]
        without_crc = text[:8] + bytes(4) + text[12:HEAD_BYTES]
        require(head.magic == b"FFCHUNK1", "no magic")
        require(head.crc == crc32c(without_crc), "head CRC32C mismatch")
        require(head.codec in (0, 1) and head.kind == kind_byte, "unknown codec or digest kind")
        require(0 < head.stored <= head.raw <= CHUNK_BYTES, "impossible lengths")
        require(head.digest[: len(name) // 2].hex() == name, "another digest than its name")
        require(len(text) == HEAD_BYTES + -(-head.stored // 4096) * 4096, "wrong file length")
        require(not any(text[HEAD_BYTES + head.stored :]), "padding is not zero")
        require(crc32c(data) == head.stored_crc, "data CRC32C mismatch")
        if head.codec == 0:
            require(head.stored == head.raw, "raw, but of two lengths")
            require(head.stored_crc == head.raw_crc, "raw, but of two CRCs")
            require(function(data).hex() == name, "data has another digest")


class Index:
    """One index, read line by line; records() checks everything that the index can prove."""

    def __init__(self, path):
        self.path = path
        self.header = None
        self.end = None

    def records(self):
        whole = bytearray()  # for the digest of the index
        with open(self.path, "rb") as file:
            number = 0
            while True:
                number += 1
                line = file.readline(LINE_MAX)
                where = "%s, line %d" % (self.path, number)
                if not line.endswith(b"\n"):
                    raise Damage(where + ": the file ends before the end line")
                record = open_seal(line[:-1], where)
                if number == 1:
                    self._begin(record, where)
                elif "end" in record:
                    break
                elif "file" in record or "tensor" in record:
                    self._count(record)
                    yield record
                else:
                    raise Damage(where + ": a line of unknown type")
                whole += line
            if file.read(1):
                raise Damage(where + ": text after the end line")
        if xxh128(bytes(whole)).hex() != record["index"]:
            raise Damage(self.path + ": the digest of the index does not match")
        counted = (self.files, self.tensors, self.size, self._content_digest())
        if counted != (record["files"], record["tensors"], record["size"], record["content"]):
            raise Damage(self.path + ": the end line counts something else")
        self.end = record

    def _begin(self, record, where):
        if record.get("ff_checkpoint", 0) > FORMAT_VERSION:
            raise Missing(where + ": a newer format than this reader knows")
        if "ff_checkpoint" not in record:
            raise Damage(where + ": not a header")
        self.header = record
        self.files = self.tensors = self.size = 0
        self.content = bytearray()

    def _count(self, record):
        text = "tensor"
        if "file" in record:
            self.files += 1
            self.size += record["size"]
            text = "file %d %s %d %s %s" % (
                record["rank"],
                record["kind"],
                record["size"],
                record["file"],
                record.get("target", ""),
            )
        else:
            self.tensors += 1
        for extent in record["extents"]:
            if len(extent) == 1:
                text += "|%d+0:" % extent[0]
            else:
                text += "|%d+%d:%s" % (extent[2], extent[1], extent[0])
        self.content += text.encode("utf-8") + b"\n"

    def _content_digest(self):
        return DIGESTS[self.header["digest"]][1](bytes(self.content)).hex()


def extents_data(store, kind, record, what):
    """The bytes of a record, extent by extent."""
    size = 0
    for extent in record["extents"]:
        if len(extent) == 1:
            size += extent[0]
            yield bytes(extent[0])
            continue
        name, offset, length, crc = extent
        data = store.chunk(name, kind)[offset : offset + length]
        if len(data) != length:
            raise Damage("%s: chunk %s is too short" % (what, name))
        if "%08x" % crc32c(data) != crc:
            raise Damage("%s: chunk %s does not have the bytes the index tells" % (what, name))
        size += length
        yield data
    if "kind" not in record or record["kind"] != "safetensors":
        if size != record["size"]:
            raise Damage("%s: its extents do not add up to its size" % what)


def safe_name(name):
    parts = name.split("/")
    return "\0" not in name and not any(part in ("", ".", "..") for part in parts)


# --- Actions


def check_checkpoint(store, run, step):
    """Reads all of a checkpoint; returns its index and a list of damages."""
    damages = []
    index = Index(store.index_path(run, step))
    try:
        for record in index.records():
            kind = "file" if "file" in record else "tensor"
            what = "%s '%s'" % (kind, record[kind])
            try:
                for _ in extents_data(store, index.header["digest"], record, what):
                    pass
            except Compressed:
                pass  # its head and stored bytes are good; more cannot be known here
            except Damage as damage:
                damages.append("%s: %s" % (what, damage))
    except Damage as damage:
        damages.append(str(damage))
    return index, damages


class Restorer:
    """Writes the files of one checkpoint below a directory."""

    def __init__(self, store, run, step, dest):
        self.store = store
        self.index = Index(store.index_path(run, step))
        self.dest = dest
        self.file = None
        self.later = []  # links, and directories with the mode and time they get at the end
        self.compressed = 0

    def run(self):
        names = [record["file"] for record in self.index.records() if "file" in record]
        self.rank_folders = len(set(names)) != len(names)
        os.mkdir(self.dest)
        for record in self.index.records():
            if "file" in record:
                self._close()
                self._begin(record)
            else:
                self._write(record, self.data_begin + record["offset"])
        self._close()
        for record, path in reversed(self.later):
            if record["kind"] == "symlink":
                os.symlink(record["target"], path)
            else:
                os.chmod(path, record["mode"])
            os.utime(path, ns=(record["mtime_ns"],) * 2, follow_symlinks=False)

    def _begin(self, record):
        name = record["file"]
        if not safe_name(name):
            raise Damage("unsafe name '%s'" % name)
        folder = "rank-%05d" % record["rank"] if self.rank_folders else ""
        path = os.path.join(self.dest, folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if record["kind"] == "directory":
            os.makedirs(path, exist_ok=True)
        if record["kind"] in ("directory", "symlink"):
            self.later.append((record, path))
            return
        self.record, self.path = record, path
        self.file = open(path, "xb")
        self.file.truncate(record["size"])
        self.data_begin = sum(e[0] if len(e) == 1 else e[2] for e in record["extents"])
        self._write(record, 0)

    def _write(self, record, at):
        if self.file is None:
            return
        try:
            for data in extents_data(self.store, self.index.header["digest"], record, self.path):
                self.file.seek(at)
                self.file.write(data)
                at += len(data)
        except Compressed:
            self.compressed += 1
            self.file.close()
            self.file = None
            os.remove(self.path)

    def _close(self):
        if self.file is None:
            return
        self.file.close()
        self.file = None
        os.chmod(self.path, self.record["mode"])
        os.utime(self.path, ns=(self.record["mtime_ns"],) * 2)


def check_store(store):
    count = 0
    damages = 0
    for run, step in store.checkpoints():
        count += 1
        index, found = check_checkpoint(store, run, step)
        damages += len(found)
        state = "DAMAGED" if found else "good"
        end = index.end or {"files": "?", "tensors": "?", "size": "?"}
        print(
            "%s@%d: %s files, %s tensors, %s bytes: %s"
            % (run, step, end["files"], end["tensors"], end["size"], state)
        )
        for text in found:
            print("  " + text)
    print(
        "store %s (%s): %d checkpoints, %d chunks good, of them %d compressed and not unpacked"
        % (store.id, store.digest, count, len(store.checked), len(store.compressed))
    )
    print("%d damages" % damages)
    return 3 if damages else 0


def restore(store, name, dest):
    run, at, step = name.partition("@")
    if not at or (run, step) not in [(r, str(s)) for r, s in store.checkpoints()]:
        raise Missing("no checkpoint %s in %s" % (name, store.path))
    restorer = Restorer(store, run, int(step), dest)
    restorer.run()
    restored = restorer.index.end["files"] - restorer.compressed
    print("%s: %d files restored to %s" % (name, restored, dest))
    if restorer.compressed:
        print("%d files need compressed chunks and were left out" % restorer.compressed)
        return 4
    return 0


def main(arguments):
    if len(arguments) not in (1, 3):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    try:
        store = Store(arguments[0])
        if len(arguments) == 1:
            return check_store(store)
        return restore(store, arguments[1], arguments[2])
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    except Damage as damage:
        print(damage, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
