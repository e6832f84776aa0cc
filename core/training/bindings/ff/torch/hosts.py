# Which ranks of a process group share a host, and where the first one listens: the ranks tell each
# other through the store of torch.distributed.
import json
import os
import socket
import uuid


def _host():
    """Equal for ranks that can share memory: the machine, and the network namespace, in which their
    Unix sockets have names."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}:{os.stat('/proc/self/ns/net').st_ino}"


def _own_address():
    """The address of this host that the other ones of the job see."""
    master = os.environ.get("MASTER_ADDR") or socket.gethostname()
    family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def _free_port(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def find(store, rank, ranks, wait):
    """The arguments job, local_rank, local_ranks and master of a Comm for this rank. `wait`: how
    long the others may take to come, a timedelta."""
    mine = {"host": _host()}
    if rank == 0:
        mine["job"] = uuid.uuid4().hex
        address = _own_address()
        text = f"[{address}]" if ":" in address else address
        mine["master"] = f"{text}:{_free_port(address)}"
    store.set(f"ff/{rank}", json.dumps(mine))
    names = [f"ff/{other}" for other in range(ranks)]
    store.wait(names, wait)  # the timeout of get() is that of the group
    everyone = [json.loads(store.get(name)) for name in names]
    hosts = [one["host"] for one in everyone]
    first, end = rank, rank + 1  # of the ranks of this host that follow one another
    while first > 0 and hosts[first - 1] == hosts[rank]:
        first -= 1
    while end < ranks and hosts[end] == hosts[rank]:
        end += 1
    place = {"job": everyone[0]["job"]}
    if end - first < ranks:
        place.update(local_rank=rank - first, local_ranks=end - first,
                     master=everyone[0]["master"])
    return place
