"""A worker of `onewrite-lab soak` on the SQLite of Python's module.

    worker.py --probe        prints the version of SQLite
    worker.py JOB            JOB is the JSON document that soak/job.rs describes

worker.rs says what a worker does. The workers of other languages do the same.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time

BUSY, LOCKED = 5, 6


def probe():
    sqlite3.connect(":memory:").enable_load_extension(True)
    print(sqlite3.sqlite_version)


def load(library):
    if library is None:  # SQLite's library has the mode.
        return
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(library)


def connect(job):
    uri = f"file:{job['database']}" + ("?vfs=onewrite" if job["library"] else "")
    c = sqlite3.connect(uri, uri=True, timeout=job["busy_ms"] / 1000, isolation_level=None)
    mode = c.execute(f"PRAGMA journal_mode={job['mode']}").fetchone()[0]
    if mode != job["mode"]:
        c.close()
        raise sqlite3.OperationalError(f"journal_mode is {mode}")
    c.execute("PRAGMA synchronous=FULL")
    return c


def is_busy(error):
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (BUSY, LOCKED)


def edn(operations):
    words = []
    for what, key, value in operations:
        if isinstance(value, list):
            value = "[" + " ".join(map(str, value)) + "]"
        words.append(f"[:{what} {key} {'nil' if value is None else value}]")
    return "[" + " ".join(words) + "]"


class Worker:
    def __init__(self, job):
        self.job = job
        self.chance = random.Random(job["seed"])
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.history = os.open(job["history"], flags, 0o600)
        self.notes = os.open(job["notes"], flags, 0o600)
        self.connection = None
        self.seq = 0

    def record(self, kind, operations):
        text = edn(operations)
        line = f"{{:type :{kind}, :process {self.job['process']}, :f :txn, :value {text}, "
        line += f":time {time.monotonic_ns()}, :seq {self.seq}}}\n"
        os.write(self.history, line.encode())

    def note(self, kind, error):
        code = getattr(error, "sqlite_errorcode", 0)
        line = f"{time.monotonic_ns()} {kind} {code} {type(error).__name__}: {error}\n"
        os.write(self.notes, line.encode())

    def active_key(self):
        epoch = int(time.monotonic() // self.job["epoch_s"])
        return epoch * 100 + self.chance.randrange(self.job["keys"])

    def plan(self):
        """The operations of the next transaction."""
        is_read = self.chance.random() < 0.35
        operations = []
        for n in range(self.chance.randrange(1, 5)):
            if is_read or self.chance.random() < 0.4:
                operations.append(("r", self.active_key(), None))
            else:
                value = self.job["process"] * 1_000_000 + self.seq * 10 + n
                operations.append(("append", self.active_key(), value))
        return operations

    def apply(self, operations):
        done = []
        for what, key, value in operations:
            if what == "append":
                sql = "INSERT INTO list VALUES(?1, ?2) ON CONFLICT(k) DO UPDATE SET v = v || ' ' || excluded.v"
                self.connection.execute(sql, (key, str(value)))
            else:
                row = self.connection.execute("SELECT v FROM list WHERE k = ?", (key,)).fetchone()
                value = [] if row is None else [int(word) for word in str(row[0]).split()]
            done.append((what, key, value))
        return done

    def transfer(self):
        c, chance = self.connection, self.chance
        accounts = self.job["accounts"]
        debit, credit, amount = chance.randrange(accounts), chance.randrange(accounts), chance.randrange(50)
        c.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (amount, debit))
        c.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (amount, credit))
        if chance.random() < 0.2:
            c.execute("SAVEPOINT s")
            c.execute("UPDATE ledger SET amount = amount + 1 WHERE id > (SELECT max(id) FROM ledger) - 200")
            c.execute("ROLLBACK TO s")
            c.execute("RELEASE s")
        note = chance.randbytes(chance.randrange(10, 300))
        row = (self.job["process"], self.seq, debit, credit, amount, note)
        c.execute("INSERT INTO ledger(process, seq, debit, credit, amount, note) VALUES(?, ?, ?, ?, ?, ?)", row)

    def check_sum(self):
        total = self.connection.execute("SELECT sum(balance) FROM account").fetchone()[0]
        if total != self.job["total"]:
            self.note("wrong", ValueError(f"a snapshot has the sum {total}"))

    def read(self, operations):
        self.connection.execute("BEGIN")
        done = self.apply(operations)
        if self.chance.random() < self.job["long_readers"]:
            time.sleep(self.chance.uniform(0.5, 4))
            # The snapshot must not have moved.
            done += self.apply(operations)
        self.check_sum()
        self.connection.execute("COMMIT")
        return done

    def write(self, operations):
        """The state of the transaction and the operations with their results."""
        # A deferred transaction reads first, and may fail when it begins to write.
        self.connection.execute(self.chance.choice(["BEGIN IMMEDIATE", "BEGIN IMMEDIATE", "BEGIN"]))
        done = self.apply(operations)
        self.transfer()
        if self.chance.random() < 0.04:
            self.connection.execute("ROLLBACK")
            return "fail", operations
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.note("commit", error)
            # After BUSY nothing is committed. After other errors the worker does not know.
            self.give_up()
            return ("fail" if is_busy(error) else "info"), operations
        return "ok", done

    def give_up(self):
        """Ends the transaction. A connection that cannot is closed."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.note("rollback", error)
            self.connection.close()
            self.connection = None

    def step(self):
        self.seq += 1
        operations = self.plan()
        self.record("invoke", operations)
        is_read = all(what == "r" for what, _, _ in operations)
        try:
            kind, done = ("ok", self.read(operations)) if is_read else self.write(operations)
        except sqlite3.Error as error:
            self.note("statement", error)
            self.give_up()
            kind, done = "fail", operations
        self.record(kind, done)

    def open(self):
        self.connection = connect(self.job)
        pages = self.chance.choice([50, 200, 1000])
        self.connection.execute(f"PRAGMA wal_autocheckpoint={pages}")
        self.connection.execute("PRAGMA cache_size=50")

    def keep_up(self):
        self.connection.execute(self.chance.choice(self.job["upkeep"])).fetchall()

    def work(self):
        pause = 1 / self.job["rate"]
        while True:
            time.sleep(self.chance.uniform(0, 2 * pause))
            try:
                if self.connection is None:
                    self.open()
                if self.chance.random() < 0.01:
                    self.keep_up()
            except sqlite3.Error as error:
                self.note("open", error)
                continue
            self.step()


def copy(job):
    """Copies the database as a backup does."""
    load(job["library"])
    c = connect(job)
    if job["role"] == "vacuum_into":
        c.execute("VACUUM INTO ?", (job["copy"],))
    else:
        c.backup(sqlite3.connect(job["copy"]))
    c.close()


def leave(*_):
    raise SystemExit(0)


def main():
    if sys.argv[1] == "--probe":
        return probe()
    job = json.loads(sys.argv[1])
    if job["role"] != "work":
        return copy(job)
    # A clean end closes the connection.
    signal.signal(signal.SIGTERM, leave)
    load(job["library"])
    Worker(job).work()


main()
