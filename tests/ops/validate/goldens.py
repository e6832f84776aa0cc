#!/usr/bin/env python3
# The CRC32C of what each kernel of `ff validate` makes, by plain arithmetic: the goldens of
# core/ops/validate/compute_kernels.cc, from code that shares nothing with it. After them the
# digests of products that GPUs compute, those of core/ops/validate/ff_gpu_gemm.c.
import hashlib
import struct


def crc32c(data):
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def gemm(side=384):
    a = [i * 7 % 29 - 14 for i in range(side * side)]
    b = [i * 11 % 31 - 15 for i in range(side * side)]
    columns = list(zip(*[b[k * side:(k + 1) * side] for k in range(side)]))
    made = bytearray()
    for i in range(side):
        row = a[i * side:(i + 1) * side]
        sums = [sum(map(lambda p, q: p * q, row, column)) for column in columns]
        made += struct.pack(f"<{side}f", *sums)
    return made


def transform(prime=998244353, count=4096):
    def of(values, root):
        if len(values) == 1:
            return values
        square = root * root % prime
        even, odd = of(values[::2], square), of(values[1::2], square)
        half, power, made = len(values) // 2, 1, [0] * len(values)
        for i in range(half):
            x = odd[i] * power % prime
            made[i], made[i + half] = (even[i] + x) % prime, (even[i] - x) % prime
            power = power * root % prime
        return made

    points = [(i * i + 12345) % prime for i in range(count)]
    return struct.pack(f"<{count}I", *of(points, pow(3, (prime - 1) // count, prime)))


def integer(rounds=200000, word=2**64):
    x, total = 88172645463325252, 0
    for i in range(rounds):
        x = (x ^ x << 13) % word
        x = x ^ x >> 7
        x = (x ^ x << 17) % word
        total += x // (i + 3) if x & 1 else x * 2862933555777941757
        total %= word
        total = (total << 11 | total >> 53) % word
    return struct.pack("<Q", total)


def noise(count=1 << 20):
    state, made = 1, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        made.append(state >> 24)
    return made


for name, made in (
    ("gemm", gemm()),
    ("transform", transform()),
    ("integer", integer()),
    ("sha256", hashlib.sha256(noise()).digest()),
    ("crc32c", noise()),
    ("memcpy", noise()),
):
    print(f"{name} 0x{crc32c(made):08x}")


def mixed(value, word=2**64):
    value = (value + 0x9E3779B97F4A7C15) % word
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % word
    value = (value ^ value >> 27) * 0x94D049BB133111EB % word
    return value ^ value >> 31


def gpu_product(seed, most, side=256):
    values = [mixed(seed << 32 ^ i) % (2 * most + 1) - most for i in range(2 * side * side)]
    lines = [values[i:i + side] for i in range(0, len(values), side)]
    digest = 0
    for row in lines[:side]:
        for column in lines[side:]:
            digest = mixed(digest ^ sum(map(lambda p, q: p * q, row, column)) % 2**64)
    return digest


for seed, (name, most) in enumerate((("fp64", 1 << 21), ("fp32", 255), ("fp16", 255),
                                     ("bf16", 255), ("tf32", 255), ("int8", 127)), start=1):
    print(f"{name} 0x{gpu_product(seed, most):016x}")
