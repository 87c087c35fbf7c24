"""Two processes on one database, and the faults of SQLite's own WAL code.

Argument 3 is the scenario, 4 the journal mode.
"""

import ctypes
import json
import random
import signal
import subprocess
import sys

EXTENSION, DATABASE, SCENARIO, MODE = sys.argv[1:5]
SQLITE_CONFIG_LOG = 16
SQLITE_NOTICE_RECOVER_WAL = 283
ROWS = 400
recoveries = 0


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def log(_, code, message):
    global recoveries
    recoveries += code == SQLITE_NOTICE_RECOVER_WAL


# This must happen before Python's module initializes the library.
assert ctypes.CDLL("libsqlite3.so.0").sqlite3_config(SQLITE_CONFIG_LOG, log, None) == 0
import sqlite3  # noqa: E402


def connect(setting):
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(EXTENSION)
    c = sqlite3.connect(f"file:{DATABASE}?vfs=onewrite", uri=True, timeout=20, isolation_level=None)
    c.execute(setting)
    assert c.execute(f"PRAGMA journal_mode={MODE}").fetchone()[0] == MODE
    c.execute("PRAGMA synchronous=FULL")
    c.execute("PRAGMA cache_size=5")
    c.execute("PRAGMA wal_autocheckpoint=0")
    return c


class Process:
    """A process with a connection of its own. It runs statements, and answers with the first value."""

    def __init__(self, setting=""):
        arguments = [sys.executable, __file__, EXTENSION, DATABASE, "serve", MODE, setting]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, sql):
        self.process.stdin.write(sql + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self, how=None):
        if how is not None:
            self.process.send_signal(how)
        self.process.stdin.close()
        self.process.wait()


def serve():
    c = connect(sys.argv[5])
    for line in sys.stdin:
        try:
            if line.strip() == "recoveries":
                print(recoveries, flush=True)
                continue
            rows = c.execute(line).fetchall()
            print(rows[0][0] if rows else "done", flush=True)
        except sqlite3.Error as e:
            print(f"error: {e}", flush=True)


def expect(process, sql, wanted):
    got = process.run(sql)
    assert got == str(wanted), f"{MODE}: {sql}: {got} instead of {wanted}"


def create(writer):
    expect(writer, "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, b BLOB)", "done")


def fill(writer):
    """The log starts again twice: a process that has not written knows an older generation."""
    for n in range(1, 4):
        writer.run("DELETE FROM t")
        writer.run(
            f"INSERT INTO t WITH r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {ROWS}) "
            f"SELECT i, {n}, randomblob(900) FROM r"
        )
        if n < 3:
            expect(writer, "PRAGMA wal_checkpoint(RESTART)", 0)


def index_in(state, at, put):
    """Changes bytes of the wal-index header, calls `state`, and restores them."""
    with open(DATABASE + "-shm", "r+b", buffering=0) as index:
        index.seek(at)
        before = index.read(len(put))
        index.seek(at)
        index.write(put)
        state()
        index.seek(at)
        index.write(before)


def reader_in_index(at, put):
    writer = Process()
    create(writer)
    reader = Process()
    expect(reader, "SELECT count(*) FROM t", 0)
    fill(writer)
    expect(reader, "BEGIN", "done")
    expect(reader, "SELECT n FROM t WHERE id = 1", 3)
    # The process that made it so would make it valid again. Here it stays so as long as the reader
    # reads.
    index_in(lambda: expect(reader, "SELECT sum(n) FROM t", 3 * ROWS), at, put)
    expect(reader, "COMMIT", "done")
    expect(reader, "PRAGMA integrity_check", "ok")
    reader.end()
    writer.end()


def invalid():
    """Both copies of the header are zero: another process is about to recover."""
    reader_in_index(0, bytes(96))


def torn():
    """The first copy is half-written, without its salts. The second is whole."""
    reader_in_index(32, bytes(8))


def rolled_back(process, rnd, n):
    """A transaction that overwrites its own frames, rolls back to before them, and commits.

    It then has fewer frames, or more.
    """
    expect(process, "BEGIN IMMEDIATE", "done")
    if rnd.random() < 0.5:
        expect(process, f"INSERT INTO u VALUES(randomblob({rnd.randrange(1, 40000)}), 0)", "done")
    expect(process, "SAVEPOINT s", "done")
    expect(process, f"UPDATE t SET b = randomblob(900) WHERE id < {rnd.randrange(100, ROWS)}", "done")
    expect(process, f"UPDATE t SET b = randomblob(900) WHERE id > {rnd.randrange(40, 90)}", "done")
    expect(process, "ROLLBACK TO s", "done")
    if rnd.random() < 0.5:
        expect(process, f"UPDATE t SET b = randomblob(900) WHERE id < {rnd.randrange(1, ROWS)}", "done")
    expect(process, f"INSERT INTO u VALUES(randomblob(10), {n})", "done")
    expect(process, "COMMIT", "done")


def survivors(setting):
    """Commits after such a transaction are recovered. No recovery runs before the processes die."""
    rnd = random.Random(23)
    writer = Process()
    create(writer)
    fill(writer)
    expect(writer, "CREATE TABLE u(b BLOB, n INT)", "done")
    if setting:
        writer.end()
        writer = Process(setting)
        others = []
    else:
        others = [Process()]
    last = 0
    for _ in range(15):
        for process in [writer, *others]:
            last += 1
            rolled_back(process, rnd, last)
            expect(writer, "SELECT max(n) FROM u", last)
        last += 1
        expect(writer, f"INSERT INTO u VALUES(NULL, {last})", "done")
        if rnd.random() < 0.2:
            expect(writer, "PRAGMA wal_checkpoint(RESTART)", 0)
    found = [process.run("recoveries") for process in [writer, *others]]
    for process in [writer, *others]:
        process.end(signal.SIGKILL)
    reader = Process()
    expect(reader, "SELECT max(n) FROM u", last)
    expect(reader, "PRAGMA integrity_check", "ok")
    reader.end()
    assert all(recovered == "0" for recovered in found), f"{MODE}: {found} recoveries"


def status():
    """The status has the running version, and its faults."""
    process = Process()
    create(process)
    found = json.loads(process.run("PRAGMA onewrite_status"))
    assert found["sqlite"] == sqlite3.sqlite_version, found
    named = " ".join(found["sqlite_faults"])
    assert ("ROLLBACK TO" in named) == (sqlite3.sqlite_version_info < (3, 50)), found
    process.end()


SCENARIOS = {
    "status": status,
    "serve": serve,
    "invalid": invalid,
    "torn": torn,
    "resealed": lambda: survivors(""),
    "resealed-exclusive": lambda: survivors("PRAGMA locking_mode=EXCLUSIVE"),
}

SCENARIOS[SCENARIO]()
if SCENARIO != "serve":
    print("done")
