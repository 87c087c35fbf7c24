"""An application that knows nothing of onewrite, with the extension made the default VFS.

It adds 50 rows, reads, and dies without closing anything.
"""

import os
import signal
import sqlite3
import sys

extension, database = sys.argv[1:3]

throwaway = sqlite3.connect(":memory:")
throwaway.enable_load_extension(True)
throwaway.load_extension(extension)
throwaway.close()

connection = sqlite3.connect(database)
connection.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, value TEXT)")
for number in range(50):
    with connection:
        connection.execute("INSERT INTO t(value) VALUES(?)", (f"value {number}",))
(mode,) = connection.execute("PRAGMA journal_mode").fetchone()
(rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
(check,) = connection.execute("PRAGMA integrity_check").fetchone()
print(mode, rows, check, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
