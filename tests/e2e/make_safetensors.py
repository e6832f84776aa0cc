#!/usr/bin/env python3
# Makes a safetensors file as a training run would write it, for the demo and the benchmarks.
"""Writes a safetensors file with the tensor names and shapes of a decoder-only transformer.

    make_safetensors.py OUT SIZE_MIB SEED [CHANGED_SHARE]

The bytes are pseudo-random from SEED (no two 4 MiB are alike). With CHANGED_SHARE that share of
the tensors, chosen by SEED and spread evenly over the layers, gets other bytes: the next step of a
training run. Standard library only; written a tensor at a time.
"""

import json
import random
import struct
import sys

HIDDEN, INNER, KEYS, VOCABULARY = 1024, 4096, 256, 32000
LAYER = [
    ("input_layernorm.weight", [HIDDEN]),
    ("mlp.down_proj.weight", [HIDDEN, INNER]),
    ("mlp.gate_proj.weight", [INNER, HIDDEN]),
    ("mlp.up_proj.weight", [INNER, HIDDEN]),
    ("post_attention_layernorm.weight", [HIDDEN]),
    ("self_attn.k_proj.weight", [KEYS, HIDDEN]),
    ("self_attn.o_proj.weight", [HIDDEN, HIDDEN]),
    ("self_attn.q_proj.weight", [HIDDEN, HIDDEN]),
    ("self_attn.v_proj.weight", [KEYS, HIDDEN]),
]
BLOCK = 1 << 20


def element_count(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def model(size):
    """Names and shapes, as many layers as `size` bytes hold in bf16."""
    tensors = [("model.embed_tokens.weight", [VOCABULARY, HIDDEN])]
    total = 2 * VOCABULARY * HIDDEN
    layer = 0
    per_layer = sum(2 * element_count(shape) for _, shape in LAYER)
    while layer == 0 or total + per_layer <= size:
        tensors += [(f"model.layers.{layer}.{name}", shape) for name, shape in LAYER]
        total += per_layer
        layer += 1
    tensors.append(("model.norm.weight", [HIDDEN]))
    return tensors


def changed_tensors(tensors, share, seed):
    """A set of names that holds `share` of the bytes, as nearly as whole tensors allow."""
    names = list(range(len(tensors)))
    random.Random(seed).shuffle(names)
    sizes = [2 * element_count(shape) for _, shape in tensors]
    left = share * sum(sizes)
    chosen = set()
    for index in names:
        if sizes[index] <= left:
            chosen.add(index)
            left -= sizes[index]
    return chosen


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    out, size, seed = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
    share = float(sys.argv[4]) if len(sys.argv) == 5 else 0.0
    tensors = model(size)
    changed = changed_tensors(tensors, share, seed)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        length = 2 * element_count(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + length]}
        offset += length
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    source = random.Random(seed).randbytes(BLOCK)
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, (name, shape) in enumerate(tensors):
            left = 2 * element_count(shape)
            number = 0
            while left > 0:
                # Each block of a tensor begins with what makes it unlike any other.
                mark = struct.pack("<IIII", index, number, int(index in changed), seed)
                block = (mark + source)[: min(BLOCK, left)]
                file.write(block)
                left -= len(block)
                number += 1


main()
