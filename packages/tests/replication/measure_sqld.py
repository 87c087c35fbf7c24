"""What a commit of libsql's server costs in `direct` and in stock `wal`: system calls of each node, counted with
strace, then commits a second in pairs of rounds.

The argument is the number of rounds. Each has a new cluster for each mode, and they take turns."""

import concurrent.futures
import math
import re
import statistics
import subprocess
import sys
import time
import unittest

import sqld
from support import Place, eventually

MODES = "direct", "wal"
COUNTED = 100
# Clients, and commits of each.
PHASES = (1, 150), (8, 50)
CALL = re.compile(r"\d+ +(\w+)\(\d+<(.*?)>(.*)")


def insert(node, client, count):
    """Commits so many rows. Returns how often the server answered that the database is locked."""
    refused = 0
    for number in range(count):
        while True:
            try:
                node.execute(f"INSERT INTO row(body) VALUES('{client} {number} {'x' * 80}')")
                break
            except OSError as error:
                if "locked" not in str(error):
                    raise
                refused += 1
    return refused


def kind(line):
    """What a traced call is, or None where it does not concern the database."""
    found = CALL.match(line)
    if not found or f"/dbs/{sqld.DATABASE}" not in found[2]:
        return None
    call, path, rest = found.groups()
    if call in ("fsync", "fdatasync"):
        return "flushes"
    if path.endswith("/wallog"):
        return "writes to wallog"
    if not path.endswith(("/data", "/data-wal")):
        return None
    return "durable writes" if "RWF_DSYNC" in rest else "other writes"


class Measured(Place):
    tells_its_seed = False

    def runTest(self):
        """Never by itself."""

    def cluster(self, mode):
        nodes = sqld.cluster(self, mode)
        insert(nodes[0], "first", 5)
        self.wait_for_replicas(nodes)
        if mode != "wal":
            for node in nodes:
                assert node.has_entered_the_mode(), node.program.log()
        return nodes

    def wait_for_replicas(self, nodes):
        def same():
            return len({tuple(node.execute("SELECT count(*) FROM row")) for node in nodes}) == 1

        eventually("the replicas have all", same)


def counts(mode):
    test = Measured()
    test.setUp()
    try:
        nodes = test.cluster(mode)
        # A reader on a replica waits for a flush that nobody else would make.
        time.sleep(1)
        traces = [test.place / f"{node.place.name} trace" for node in nodes]
        tracers = [subprocess.Popen(["strace", "-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e",
                                     "trace=fsync,fdatasync,pwrite64,pwritev,pwritev2", "-o", trace, "-p",
                                     str(node.program.process.pid)])
                   for node, trace in zip(nodes, traces)]
        time.sleep(2)
        insert(nodes[0], "counted", COUNTED)
        time.sleep(3)
        for tracer in tracers:
            tracer.terminate()
            tracer.wait()
        test.wait_for_replicas(nodes)
        for node, trace in zip(nodes, traces):
            found = [kind(line) for line in trace.read_text(errors="replace").splitlines()]
            each = {name: found.count(name) for name in ("durable writes", "other writes", "flushes", "writes to wallog")}
            print(f"{COUNTED} commits, {mode}, {node.place.name}: {each}", flush=True)
    finally:
        test.doCleanups()


def rates(mode):
    """Commits a second in each phase: until the primary has answered, and until the replicas have them."""
    test = Measured()
    test.setUp()
    try:
        nodes = test.cluster(mode)
        found = []
        for clients, commits in PHASES:
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                names = [f"{clients} {number}" for number in range(clients)]
                refused = sum(pool.map(lambda name: insert(nodes[0], name, commits), names))
            answered = time.monotonic()
            test.wait_for_replicas(nodes)
            found += [clients * commits / (end - began) for end in (answered, time.monotonic())]
            print(f"{mode}, {clients} clients: {refused} commits were refused, and tried again", flush=True)
        return found
    finally:
        test.doCleanups()


def main(rounds):
    for mode in MODES:
        counts(mode)
    names = [f"{clients} client{'s' * (clients > 1)}, {until}" for clients, _ in PHASES
             for until in ("answered", "on all nodes")]
    found = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES if number % 2 else reversed(MODES):
            found[mode].append(rates(mode))
    for place, name in enumerate(names):
        ours, stock = ([round[place] for round in found[mode]] for mode in MODES)
        ratios = [a / b for a, b in zip(ours, stock)]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{name}: direct {statistics.median(ours):.0f} /s, wal {statistics.median(stock):.0f} /s, ratio {mean:.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}), faster in {sum(r > 1 for r in ratios)} of {rounds}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
