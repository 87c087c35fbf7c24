"""A program that knows nothing of onewrite, next to a stock connection that is open and does nothing.

With ONEWRITE_UPGRADE_WAL it asks for WAL, and gets it although the database remembers another mode.
"""

import os
import sqlite3
import sys

extension, database = sys.argv[1:3]

loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(extension)
loader.close()


def connect(vfs=None):
    uri = f"file:{database}" + (f"?vfs={vfs}" if vfs else "")
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=1)


def ask(connection, statement):
    return connection.execute(statement).fetchone()[0]


connection = connect()
ask(connection, "PRAGMA journal_mode=wal")
connection.execute("CREATE TABLE t(x)")
connection.close()
remembered = os.path.getsize(database + "-onewrite") > 0

idle = connect("unix")
ask(idle, "SELECT count(*) FROM t")
connection = connect()
rows = ask(connection, "SELECT count(*) FROM t")
mode = ask(connection, "PRAGMA journal_mode=wal")
connection.execute("INSERT INTO t VALUES(1)")
print(remembered, rows, mode, ask(idle, "SELECT count(*) FROM t"))
idle.close()
connection.close()

connection = connect()
print(ask(connection, "SELECT count(*) FROM t"), '"mode":"onewrite"' in ask(connection, "PRAGMA onewrite_status"))
