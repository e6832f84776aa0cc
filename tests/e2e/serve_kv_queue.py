#!/usr/bin/env python3
# `ff serve-kv` with clients that wait: queues of streams and lists, and clients in cluster mode.
"""usage: serve_kv_queue.py FF PART

  queue     a stream as a queue of several consumers, while the daemon is killed again and again
  slots     two daemons share the keys: clients in cluster mode find them, also when one is killed
  waits     commands that wait for keys: woken, timed out, ended, and clients that leave

Exits with 77 where something that a part needs is not there.
"""
import logging
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True  # nothing is left in the tree
from kv_daemon import cli, expect, Raw, refused, serve, serves_all, share, skip, until, run_part

import redis
import redis.cluster


class Consumers:
    """Consumers of one group that acknowledge what they get, and remember what was acknowledged."""

    def __init__(self, port, count=4):
        self.port, self.stopping, self.acked = port, False, [[] for _ in range(count)]
        self.seen = [{} for _ in range(count)]
        self.done, self.again = set(), []  # acknowledged by anybody; delivered after that
        self.threads = [threading.Thread(target=self.consume, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def consume(self, number):
        client, after = None, "0"
        while not self.stopping:
            try:
                if client is None:  # first what it had got and not acknowledged
                    client, after = Raw(("127.0.0.1", self.port)), "0"
                reply = client.ask("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", 10, "BLOCK",
                                   50, "STREAMS", "queue", after)
                if not isinstance(reply, list):
                    if reply[:1] == b"-":
                        time.sleep(0.02)  # nobody serves it for now
                    continue
                entries = reply[1][2][1:]
                if not entries:
                    after = ">"
                    continue
                for _, name, fields in entries:
                    if fields[2] in self.done:
                        self.again.append(fields[2])
                    self.seen[number].setdefault(fields[2], []).append(name)
                    if client.ask("XACK", "queue", "g", name[1:]) == b":1":
                        self.acked[number].append(fields[2])
                        self.done.add(fields[2])
            except (OSError, AssertionError, ValueError):
                client = None
                time.sleep(0.01)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


class Producer:
    """Adds entries, and remembers those that were acknowledged, and those that may be there."""

    def __init__(self, port):
        self.port, self.stopping, self.acked, self.unsure = port, False, [], set()
        self.thread = threading.Thread(target=self.produce)
        self.thread.start()

    def produce(self):
        client, i = None, 0
        while not self.stopping:
            name = b"$%d" % i
            try:
                if client is None:
                    client = Raw(("127.0.0.1", self.port))
                self.unsure.add(name)
                i += 1
                reply = client.ask("XADD", "queue", "*", "name", name[1:])
                if reply[:1] == b"$":
                    self.acked.append(name)
                    self.unsure.discard(name)
            except (OSError, AssertionError, ValueError):
                client = None
                time.sleep(0.01)

    def stop(self):
        self.stopping = True
        self.thread.join()


def queue(folder):
    """Each entry that was added is acknowledged once; one that was not may come several times."""
    daemon = serve(f"{folder}/kv")
    port = daemon.port
    redis.Redis(port=port).xgroup_create("queue", "g", "0", mkstream=True)
    producer, consumers = Producer(port), Consumers(port)
    for _ in range(4):
        before = sum(map(len, consumers.acked))
        until("entries are consumed", lambda: sum(map(len, consumers.acked)) > before + 1000)
        daemon.kill()
        daemon = serve(f"{folder}/kv", port=port)
        until("its partitions are claimed", lambda: serves_all(port))
    producer.stop()
    client = redis.Redis(port=port)

    def is_done():
        group = client.xinfo_groups("queue")[0]
        return group["pending"] == 0 and group["lag"] == 0
    until("all is consumed", is_done)
    consumers.stop()
    acked = [name for some in consumers.acked for name in some]
    expect(len(acked), len(set(acked)), "an entry is acknowledged once")
    seen = set().union(*consumers.seen)
    missing = set(producer.acked) - seen
    assert not missing, f"{len(missing)} entries are lost, such as {sorted(missing)[:5]}"
    invented = seen - set(producer.acked) - producer.unsure
    assert not invented, f"{len(invented)} entries are not known"
    expect(consumers.again, [], "entries that come again after they were acknowledged")
    deliveries = sum(len(ids) for some in consumers.seen for ids in some.values())
    print(f"{len(seen)} entries, {len(acked)} acknowledged, {deliveries - len(seen)} came again")
    assert len(acked) > len(seen) * 0.9, (len(acked), len(seen))
    length = client.xlen("queue")
    expect(client.xtrim("queue", maxlen=0, approximate=False), length)
    client.delete("queue")
    daemon.stop()


def slots(folder):
    if shutil.which("redis-cli") is None:
        skip("redis-cli is not installed")
    logging.disable(logging.CRITICAL)  # the library logs each redirection
    first = serve(f"{folder}/kv")
    second = serve(f"{folder}/kv")
    ports = [first.port, second.port]
    until("each has its share", lambda: share(ports[0]) == share(ports[1]) == 8)
    client = redis.cluster.RedisCluster(
        startup_nodes=[redis.cluster.ClusterNode("127.0.0.1", second.port)], decode_responses=True)
    plain = redis.Redis(port=second.port, decode_responses=True)
    expect(plain.execute_command("CLUSTER KEYSLOT", "foo"), 12182)
    names = [f"k{i}" for i in range(200)]
    for key in names[:20]:
        expect(cli(second.port, "-c", "SET", key, "v" + key), "OK\n")
    for key in names[20:]:
        client.set(key, "v" + key)
    expect([client.get(key) for key in names], ["v" + key for key in names])
    expect(cli(first.port, "-c", "GET", "k7") + cli(first.port, "-c", "GET", "k8"), "vk7\nvk8\n")
    # What concerns all keys, each gateway says of its own ones.
    numbers = [redis.Redis(port=port).dbsize() for port in ports]
    assert sum(numbers) == 200 and min(numbers) > 50, numbers
    expect(sorted(client.scan_iter("k*", count=13)), sorted(names))
    expect(client.mget_nonatomic(names), ["v" + key for key in names])
    # Without cluster mode: the keys of a gateway, and of one slot at a time.
    replies = [Raw(("127.0.0.1", port)).ask("GET", "k7") for port in ports]
    expect(sorted(reply[:6] for reply in replies), [b"$vk7", b"-MOVED"])
    refused("CROSSSLOT", lambda: plain.mget(names))
    expect(plain.info("server")["redis_mode"], "cluster")
    client.xgroup_create("s", "g", "0", mkstream=True)
    client.xadd("s", {"n": "1"})
    expect(len(client.xreadgroup("g", "c", {"s": ">"}, count=1, block=1)), 1)
    expect(client.xpending("s", "g")["pending"], 1)
    expect(client.cluster_info()["cluster_state"], "ok")
    expect({name for name, node in client.cluster_nodes().items() if node["slots"]},
           {f"127.0.0.1:{port}" for port in ports})
    shards = redis.Redis(port=second.port).execute_command("CLUSTER SHARDS")
    expect(sorted(shard[3][0][3] for shard in shards), sorted([first.port, second.port]))
    for words, keys in ((("XREAD", "COUNT", 1, "STREAMS", "a", "b", 0, 0), ["a", "b"]),
                        (("MSET", "a", 1, "b", 2), ["a", "b"])):
        expect(plain.execute_command("COMMAND GETKEYS", *words), keys)
    refused("no key arguments", lambda: plain.execute_command("COMMAND GETKEYS", "PING"))
    refused("Invalid command", lambda: plain.execute_command("COMMAND GETKEYS", "NOSUCH"))
    first.kill()
    until("the second gateway serves", lambda: serves_all(second.port))
    expect([client.get(key) for key in names], ["v" + key for key in names])
    expect(client.set("k7", "w"), True)
    expect(client.xack("s", "g", client.xpending_range("s", "g", "-", "+", 1)[0]["message_id"]), 1)
    expect((plain.flushall(), plain.dbsize()), (True, 0))
    second.stop()


def waits(folder):
    daemon = serve(f"{folder}/kv")
    port = daemon.port
    client = redis.Redis(port=port, decode_responses=True)

    def waiting():
        return client.info("clients")["blocked_clients"]
    first, second, reader = (Raw(("127.0.0.1", port)) for _ in range(3))
    # Whoever waits for new entries of a group gets one, the first one first.
    client.xgroup_create("s", "g", "$", mkstream=True)
    for number, one in enumerate((first, second)):
        one.send("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", 1, "BLOCK", 0, "STREAMS", "s",
                 ">")
        until("it waits", lambda: waiting() == number + 1)
    reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "other", "$", "$")
    until("the reader waits", lambda: waiting() == 3)
    names = [client.xadd("s", {"n": str(i)}).encode() for i in range(2)]
    expect([one.reply()[1][2][1][1] for one in (first, second)], [b"$" + name for name in names])
    expect(reader.reply()[1][2][1][1], b"$" + names[0])
    # The end of the time, of the wait, and of the client.
    expect(first.ask("XREAD", "BLOCK", 20, "STREAMS", "s", "$"), b"*-1")
    first_id = int(first.ask("CLIENT", "ID")[1:])
    for reason, reply in ((None, b"*-1"), ("TIMEOUT", b"*-1"),
                          ("ERROR", b"-UNBLOCKED client unblocked via CLIENT UNBLOCK")):
        first.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
        first.send("PING")
        until("it waits", lambda: waiting() == 1)
        words = ["CLIENT", "UNBLOCK", first_id] + ([reason] if reason else [])
        expect(client.execute_command(*words), 1)
        expect((first.reply(), first.reply()), (reply, b"+PONG"))
        expect(client.execute_command(*words), 0)
    first.send("XREADGROUP", "GROUP", "g", "c0", "BLOCK", 0, "STREAMS", "s", ">")
    until("it waits", lambda: waiting() == 1)
    first.close()
    until("nobody waits for a client that has left", lambda: waiting() == 0)
    client.xadd("s", {"n": "2"})
    expect(len(second.ask("XREADGROUP", "GROUP", "g", "c1", "STREAMS", "s", ">")[1][2]), 2)
    # The stream or the group goes while somebody waits.
    for words in (("XGROUP", "DESTROY", "s", "g"), ("DEL", "s")):
        client.execute_command("XGROUP", "CREATE", "s", "h", "$")
        second.send("XREADGROUP", "GROUP", "h" if words[0] == "DEL" else "g", "c", "BLOCK", 0,
                    "STREAMS", "s", ">")
        until("it waits", lambda: waiting() == 1)
        client.execute_command(*words)
        assert second.reply().startswith(b"-NOGROUP"), words
        if words[0] == "XGROUP":
            client.xgroup_destroy("s", "h")
    # A rename brings the key that somebody waits for.
    second.send("XREAD", "BLOCK", 0, "STREAMS", "{s}new", 0)
    until("it waits", lambda: waiting() == 1)
    client.xadd("s", {"n": "3"})
    client.rename("s", "{s}new")
    expect(len(second.reply()), 2)
    # Lists: the first one gets it, and an element that is pushed while others push, too.
    for number, one in enumerate((second, reader)):
        one.send("BLPOP", "none", "list", 0)
        until("it waits", lambda: waiting() == number + 1)
    expect(client.rpush("list", "a", "b", "c"), 3)
    expect([one.reply()[2] for one in (second, reader)], [b"$a", b"$b"])
    expect(client.lrange("list", 0, -1), ["c"])
    second.send("BLMOVE", "{list}from", "{list}to", "LEFT", "RIGHT", 0)
    reader.send("BRPOP", "{list}to", 0)
    until("both wait", lambda: waiting() == 2)
    expect(client.lpush("{list}from", "x"), 1)
    expect((second.reply(), reader.reply()[2]), (b"$x", b"$x"))
    expect(client.exists("{list}from", "{list}to"), 0)
    got = []

    def take():
        other = redis.Redis(port=port)
        while (found := other.blpop("work", timeout=10))[1] != b"end":
            got.append(int(found[1]))
    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for i in range(2000):
        client.rpush("work", i)
    client.rpush("work", *["end"] * len(takers))
    for taker in takers:
        taker.join()
    expect(sorted(got), list(range(2000)), "each element goes to one client")
    # Drawn members are members, and SSCAN finds each that stays while others come and go.
    members = {f"m{i}" for i in range(1000)}
    client.sadd("set", *members)
    assert client.srandmember("set") in members
    expect(len(set(client.srandmember("set", 100))), 100)
    expect(len(client.srandmember("set", -3000)), 3000)
    found, cursor = set(), None
    while cursor != 0:
        cursor, some = client.sscan("set", cursor or 0, count=37)
        found.update(some)
        client.sadd("set", *(f"n{len(found)}-{i}" for i in range(10)))
        client.srem("set", *(f"n{len(found)}-{i}" for i in range(5)))
    assert found >= members, sorted(members - found)[:5]
    popped = client.spop("set", 100)
    expect((len(set(popped)), client.sismember("set", popped[0])), (100, 0))
    # The daemon ends although somebody waits.
    second.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    until("it waits", lambda: waiting() == 1)
    daemon.stop()


PARTS = {part.__name__: part for part in (queue, slots, waits)}

if __name__ == "__main__":
    run_part(PARTS)
