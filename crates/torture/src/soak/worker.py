"""The processes of `onewrite-torture soak`, on the SQLite that Python's module loads.

    worker.py EXTENSION DATABASE MODE create|write|check ...

EXTENSION "-" is SQLite without onewrite. The orchestrator reads files that survive a killed process:
ids of rows whose COMMIT has returned (`acknowledged.N`), failures (`wrong.N`), and the number of
SQLite's recoveries (`recovered.N`).
"""

import ctypes
import json
import os
import random
import sys
import time

ACCOUNTS, BALANCE = 1000, 1000
TOTAL = ACCOUNTS * BALANCE
SQLITE_CONFIG_LOG = 16
SQLITE_NOTICE_RECOVER_WAL = 283
PR_SET_PDEATHSIG = 1
SQLITE_BUSY, SQLITE_LOCKED = 5, 6

EXTENSION, DATABASE, MODE, WHAT, *REST = sys.argv[1:]
DIRECTORY = os.path.dirname(DATABASE)
NAME = REST[0] if REST else "0"


def append_to(name):
    path = os.path.join(DIRECTORY, f"{name}.{NAME}")
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


RECOVERED = append_to("recovered")


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def log(_, code, message):
    if code == SQLITE_NOTICE_RECOVER_WAL:
        os.write(RECOVERED, b"+")


ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9)
# This must happen before Python's module initializes the library.
assert ctypes.CDLL("libsqlite3.so.0").sqlite3_config(SQLITE_CONFIG_LOG, log, None) == 0
import sqlite3  # noqa: E402


def connect():
    if EXTENSION == "-":
        c = sqlite3.connect(DATABASE, timeout=30, isolation_level=None)
    else:
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(EXTENSION)
        c = sqlite3.connect(f"file:{DATABASE}?vfs=onewrite", uri=True, timeout=30, isolation_level=None)
    mode = c.execute(f"PRAGMA journal_mode={MODE}").fetchone()[0]
    if mode != MODE:
        raise SystemExit(f"journal_mode is {mode}, and not {MODE}")
    c.execute("PRAGMA synchronous=FULL")
    return c


def is_busy(e):
    return isinstance(e, sqlite3.OperationalError) and getattr(e, "sqlite_errorcode", 0) & 0xFF in (
        SQLITE_BUSY,
        SQLITE_LOCKED,
    )


def create():
    c = connect()
    c.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, balance INT)")
    c.execute("CREATE TABLE ledger(id INTEGER PRIMARY KEY AUTOINCREMENT, debit INT, credit INT, amount INT, note BLOB)")
    c.execute("CREATE INDEX by_accounts ON ledger(debit, credit)")
    c.execute("BEGIN")
    c.executemany("INSERT INTO account VALUES(?, ?)", [(i, BALANCE) for i in range(ACCOUNTS)])
    c.execute("COMMIT")
    print(sqlite3.sqlite_version)


def read_long(c, chance):
    """Keeps a snapshot while others write and checkpoint."""
    c.execute("BEGIN")
    sums = []
    for _ in range(2):
        sums.append(c.execute("SELECT sum(balance) FROM account").fetchone()[0])
        time.sleep(chance.random() * 0.15)
    counts = [
        c.execute(f"SELECT count(*) FROM ledger {how}").fetchone()[0]
        for how in ("NOT INDEXED", "INDEXED BY by_accounts")
    ]
    c.execute("COMMIT")
    if sums != [TOTAL, TOTAL] or counts[0] != counts[1]:
        raise sqlite3.DatabaseError(f"a reader saw sums {sums} and {counts} rows")


def transfer(c, chance):
    """Runs a transaction and returns the ids of its rows; none if it is rolled back."""
    kind = chance.random()
    c.execute("BEGIN IMMEDIATE")
    debit, credit, amount = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS), chance.randrange(50)
    c.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (amount, debit))
    c.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (amount, credit))
    ids = []
    for _ in range(150 if kind > 0.99 else chance.choice([1, 1, 2])):
        note = chance.randbytes(chance.randrange(20, 900))
        row = (debit, credit, amount, note)
        ids.append(c.execute("INSERT INTO ledger(debit, credit, amount, note) VALUES(?, ?, ?, ?)", row).lastrowid)
    if kind < 0.45:
        # Changes more pages than the cache holds, twice, and rolls them back.
        c.execute("SAVEPOINT s")
        c.execute("DELETE FROM ledger WHERE id > ?", (ids[0] - 50,))
        c.execute("UPDATE ledger SET amount = amount + 1 WHERE id > ?", (ids[0] - 100,))
        c.execute("ROLLBACK TO s")
        c.execute("RELEASE s")
    elif kind < 0.5:
        c.execute("ROLLBACK")
        return ids if "lie" in REST else []
    elif kind < 0.6:
        c.execute("UPDATE ledger SET note = zeroblob(10) WHERE id = ?", (max(1, ids[0] - chance.randrange(500)),))
    c.execute("COMMIT")
    return ids


def work(c, chance, acknowledged):
    if chance.random() < 0.06:
        return read_long(c, chance)
    ids = transfer(c, chance)
    if ids:
        os.write(acknowledged, (" ".join(map(str, ids)) + "\n").encode())
    if chance.random() < 0.003:
        c.execute(f"PRAGMA wal_checkpoint({chance.choice(['FULL', 'RESTART', 'TRUNCATE'])})").fetchall()


def write():
    chance = random.Random(int(REST[1]))
    acknowledged, wrong = append_to("acknowledged"), append_to("wrong")
    c = None
    while True:
        try:
            if c is None:
                c = connect()
                c.execute("PRAGMA cache_size=20")
                c.execute(f"PRAGMA wal_autocheckpoint={chance.choice([50, 200, 1000])}")
            work(c, chance, acknowledged)
        except sqlite3.Error as e:
            if not is_busy(e):
                name = getattr(e, "sqlite_errorname", "")
                os.write(wrong, f"{type(e).__name__} {name}: {e}\n".encode())
                time.sleep(0.1)
            if c is not None and c.in_transaction:
                try:
                    c.execute("ROLLBACK")
                except sqlite3.Error:
                    c = None


def acknowledged_ids():
    ids = []
    for name in os.listdir(DIRECTORY):
        if name.startswith("acknowledged."):
            with open(os.path.join(DIRECTORY, name)) as file:
                # A killed process leaves whole lines. The last line of a living one may be
                # incomplete.
                for line in file.read().split("\n")[:-1]:
                    ids += map(int, line.split())
    return ids


def check():
    wanted = acknowledged_ids()
    c = connect()
    c.execute("BEGIN")
    total = c.execute("SELECT sum(balance) FROM account").fetchone()[0]
    rows = {row[0] for row in c.execute("SELECT id FROM ledger NOT INDEXED")}
    indexed = {row[0] for row in c.execute("SELECT id FROM ledger INDEXED BY by_accounts")}
    integrity = c.execute("PRAGMA integrity_check").fetchone()[0] if "integrity" in REST else "ok"
    c.execute("COMMIT")
    print(
        json.dumps(
            {
                "acknowledged": len(wanted),
                "missing": sum(id not in rows for id in wanted),
                "twice": len(wanted) - len(set(wanted)),
                "sum_is_right": total == TOTAL,
                "index_is_right": rows == indexed,
                "integrity": integrity,
            }
        )
    )


{"create": create, "write": write, "check": check}[WHAT]()
