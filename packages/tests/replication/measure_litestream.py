"""measure_litestream.py RUNS

Counts how often Litestream's copy is the same after a writer was killed six times, for five ways to go on:

    alone      Litestream runs on, and only the writer starts again
    writer     the writer is killed, then Litestream, and both start again
    both       Litestream is killed first, then the writer, and both start again
    reset      as `writer`, and `litestream reset` comes before the start
    new        as `reset`, and the replica is a new one

Each in mode `direct`, and in stock `wal`. A copy is damaged if SQLite says so, or has other rows. Other
failures are errors of Litestream, such as one that cannot restore.
"""

import collections
import sqlite3
import sys
import unittest

import onewrite
from litestream import Litestream, reset
from support import Place, Writer, eventually

KILLS = 6
WAYS = ("alone", "writer", "both", "reset", "new")
OUTCOMES = ("same", "other rows", "damaged", "other failures")


class Run(Place):
    """One run. It is a test only for its directory and its clean-up."""

    tells_its_seed = False
    replica = "replica"

    def runTest(self):
        if self.mode == "direct":
            onewrite.connect(self.database, mode="direct").close()
        litestream = getattr(self, self.way)()
        Writer(self, self.database, self.mode, commits=10).wait_for_its_end()
        litestream.stop()
        rows = self.rows(self.database, self.mode if self.mode == "direct" else "stock")
        try:
            copy = litestream.restore()
        except AssertionError as error:
            print(f"{self.way}, {self.mode}: {error}", flush=True)
            self.outcome = "other failures"
            return
        try:
            self.outcome = "same" if self.rows(copy, "stock") == rows else "other rows"
        except (AssertionError, sqlite3.DatabaseError):
            self.outcome = "damaged"

    def alone(self):
        litestream = self.litestream()
        for _ in range(KILLS):
            self.killed(Writer(self, self.database, self.mode))
        return litestream

    def writer(self):
        return self.restarted(lambda: None)

    def both(self):
        for _ in range(KILLS):
            litestream, writer = self.litestream(), Writer(self, self.database, self.mode)
            self.killed(writer, litestream.kill)
        return self.litestream()

    def reset(self):
        return self.restarted(lambda: reset(self.place, self.database))

    def new(self):
        def prepare():
            reset(self.place, self.database)
            self.replica += "-new"

        return self.restarted(prepare)

    def restarted(self, prepare):
        for _ in range(KILLS):
            litestream = self.litestream()
            self.killed(Writer(self, self.database, self.mode))
            litestream.kill()
            prepare()
        return self.litestream()

    def litestream(self):
        litestream = Litestream(self, self.replica)
        eventually("Litestream's socket", litestream.is_ready)
        return litestream

    def killed(self, writer, before=lambda: None):
        writer.wait_for_commits(self.random.randrange(5, 60))
        before()
        writer.kill()


def main():
    runs = int(sys.argv[1])
    counts = collections.defaultdict(collections.Counter)
    for _ in range(runs):
        for way in WAYS:
            for mode in ("direct", "wal"):
                run = Run()
                run.way, run.mode, run.outcome = way, mode, "other failures"
                result = unittest.TestResult()
                run.run(result)
                for _, problem in result.errors + result.failures:
                    print(f"{way}, {mode}: {problem}", flush=True)
                counts[way, mode][run.outcome] += 1
    print("| goes on | mode | " + " | ".join(OUTCOMES) + " |")
    print("| --- " * (2 + len(OUTCOMES)) + "|")
    for (way, mode), found in counts.items():
        print(f"| {way} | `{mode}` | " + " | ".join(str(found[outcome]) for outcome in OUTCOMES) + " |")


if __name__ == "__main__":
    main()
