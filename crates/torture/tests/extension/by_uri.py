"""Loads the extension on a throwaway connection, and opens the database through its VFS by URI."""

import json
import sqlite3
import subprocess
import sys

extension, database = sys.argv[1:3]

throwaway = sqlite3.connect(":memory:")
throwaway.enable_load_extension(True)
throwaway.load_extension(extension)
throwaway.close()

connection = sqlite3.connect(f"file:{database}?vfs=onewrite", uri=True)
(mode,) = connection.execute("PRAGMA journal_mode=waldio").fetchone()
connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)")
for number in range(100):
    with connection:
        connection.execute("INSERT INTO t(value) VALUES(?)", (f"value {number}" * 10,))

status = json.loads(connection.execute("PRAGMA onewrite_status").fetchone()[0])
assert status["mode"] == "waldio", status

# Another process, because this one must not open the file a second time by other means.
stock = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM t')"
refused = subprocess.run([sys.executable, "-c", stock, database], capture_output=True, text=True)
assert "file is not a database" in refused.stderr, refused

(rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
(check,) = connection.execute("PRAGMA integrity_check").fetchone()
connection.close()
print(mode, rows, check)
