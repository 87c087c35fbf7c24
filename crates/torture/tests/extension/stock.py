"""Opens the database without the extension."""

import sqlite3
import sys

connection = sqlite3.connect(sys.argv[2])
(mode,) = connection.execute("PRAGMA journal_mode").fetchone()
(rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
(check,) = connection.execute("PRAGMA integrity_check").fetchone()
connection.close()
print(mode, rows, check)
