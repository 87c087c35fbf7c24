"""A backup is copied over a database that was not closed: the error that the application gets.

It makes a database, kills the process that uses it, and puts another in its place.
"""

import os
import signal
import sqlite3
import sys

extension, database = sys.argv[1:3]

loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(extension)
loader.close()


def connect():
    return sqlite3.connect(f"file:{database}?vfs=onewrite", uri=True, isolation_level=None)


child = os.fork()
if child == 0:
    connection = connect()
    connection.execute("PRAGMA journal_mode=onewrite").fetchall()
    connection.execute("CREATE TABLE t(x)")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)

backup = sqlite3.connect(database + ".backup")
backup.execute("CREATE TABLE u(x)")
backup.commit()
backup.close()
os.replace(database + ".backup", database)

try:
    connect().execute("SELECT count(*) FROM u").fetchall()
except sqlite3.Error as error:
    print("onewrite salvage" in str(error), "onewrite verify" in str(error), database in str(error))
