"""Leaves the modes of all attached databases at once, after another connection has committed.

For each mode it prints the rows that a stock connection finds afterwards.
"""

import os
import sqlite3
import sys

extension, directory = sys.argv[1], os.path.dirname(sys.argv[2])

loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(extension)
loader.close()


def uri(name):
    return f"file:{os.path.join(directory, name)}?vfs=onewrite"


def connect(name):
    return sqlite3.connect(uri(name), uri=True, isolation_level=None)


for mode in "wal", "direct", "waldio", "onewrite":
    connection = connect(mode)
    connection.execute(f"PRAGMA journal_mode={mode}").fetchall()
    connection.execute("CREATE TABLE t(x)")
    connection.close()

    connection = connect("main")
    connection.execute("ATTACH ? AS second", (uri(mode),))
    connection.execute("INSERT INTO t VALUES(1)")
    connection.execute("SELECT * FROM t").fetchall()
    other = connect(mode)
    other.execute("INSERT INTO t VALUES(2)")
    other.close()
    connection.execute("PRAGMA journal_mode=delete").fetchall()
    connection.execute("INSERT INTO t VALUES(3)")
    connection.close()

    stock = sqlite3.connect(os.path.join(directory, mode))
    rows = [str(x) for (x,) in stock.execute("SELECT x FROM t ORDER BY x")]
    (journal,) = stock.execute("PRAGMA journal_mode").fetchone()
    print(mode, ",".join(rows), journal)
    stock.close()
