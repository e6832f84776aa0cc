#!/usr/bin/env python3
# An example, and a test: serving engines that share the KV blocks of prompt prefixes through one
# store. One gateway writes; every engine reads by itself.
"""usage: kv_cache.py FOLDER FF, where the package ff and libff.so are, and the binary

A prompt is cut into blocks of tokens. The name of a block is a hash of all tokens up to its end, so
prompts with a common beginning have their first blocks in common, and what one engine has computed,
another one loads.
"""
import hashlib
import multiprocessing
import sys
import tempfile

from kv_gateway import Gateway

TOKENS = 16  # of a block
BLOCK = 128 << 10  # bytes of its keys and values


def block_names(tokens):
    """The names of the full blocks of a prompt."""
    names, chain = [], hashlib.sha256(b"model-7b")
    for first in range(0, len(tokens) - TOKENS + 1, TOKENS):
        block = tokens[first:first + TOKENS]
        chain.update(b"".join(token.to_bytes(4, "little") for token in block))
        names.append(chain.digest())
    return names


def compute(name):
    """What a model does in the place of this: the keys and values of the block."""
    return hashlib.sha256(name).digest() * (BLOCK // 32)


class Engine:
    def __init__(self, ff, store):
        self.kv = ff.KV(store, max_age=0)
        self.hits = self.blocks = 0

    def prefill(self, tokens):
        """Loads the longest prefix that the store has, computes the rest, and stores it."""
        names = block_names(tokens)
        there = self.kv.exists_many(names)
        found = there.index(False) if False in there else len(there)
        memory = [bytearray(BLOCK) for _ in names]
        sizes = self.kv.get_many(names[:found], into=memory[:found])
        # A block may have been evicted since: those from there on are computed.
        found = sizes.index(None) if None in sizes else found
        for i in range(found, len(names)):
            memory[i][:] = compute(names[i])
        self.kv.put_many(zip(names[found:], memory[found:]), ttl=3600)
        self.hits += found
        self.blocks += len(names)
        assert all(block == compute(name) for name, block in zip(names, memory))
        return found


def engine(folder, store, orders):
    """A process: for each prompt it receives, it sends how many blocks were there."""
    sys.path.insert(0, folder)
    import ff
    me = Engine(ff, store)
    for tokens in iter(orders.recv, None):
        orders.send(me.prefill(tokens))
    orders.send((me.hits, me.blocks))


def main():
    context = multiprocessing.get_context("spawn")
    system = list(range(1000, 1000 + 8 * TOKENS))  # 8 blocks that all prompts begin with
    document = list(range(5000, 5000 + 20 * TOKENS))
    with tempfile.TemporaryDirectory() as work, Gateway(sys.argv[2], f"{work}/cache"):
        engines = {}
        for name in "AB":
            ours, theirs = context.Pipe()
            process = context.Process(target=engine, args=(sys.argv[1], f"{work}/cache", theirs))
            process.start()
            engines[name] = (ours, process)

        def ask(name, tokens):
            engines[name][0].send(tokens)
            return engines[name][0].recv()

        assert ask("A", system + document + [1, 2, 3]) == 0  # 28 blocks, and 3 tokens
        assert ask("B", system + document + [7] * 40) == 28  # of 30
        assert ask("B", system + [9] * 64) == 8  # of 12
        assert ask("A", system + document + [7] * 40) == 30
        assert ask("A", system + [9] * 32 + [8] * 32) == 10  # of 12
        assert ask("B", document) == 0  # the same tokens behind another beginning, 20 blocks
        totals = {}
        for name, (orders, process) in engines.items():
            orders.send(None)
            totals[name] = orders.recv()
            process.join()
            print(f"engine {name}: {totals[name][0]} of {totals[name][1]} blocks were there, "
                  f"{totals[name][0] / totals[name][1]:.0%}")
        assert totals == {"A": (40, 70), "B": (36, 62)}, totals


if __name__ == "__main__":
    main()
