"""writer.py DATABASE MODE FILE COMMITS

Opens the database in a mode of onewrite, or in stock `wal`. Each transaction adds a row and changes an
older one. After its COMMIT the row's id goes into FILE. It ends after COMMITS transactions; 0 means never.
"""

import os
import random
import sqlite3
import sys

import onewrite

database, mode, acknowledged, commits = sys.argv[1:]
if mode == "wal":
    connection = sqlite3.connect(database, timeout=100, isolation_level=None)
    connection.execute("PRAGMA journal_mode=wal")
    connection.execute("PRAGMA synchronous=FULL")
else:
    connection = onewrite.connect(database, mode=mode, timeout=100, isolation_level=None)
ledger = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
connection.execute("CREATE TABLE IF NOT EXISTS row(id INTEGER PRIMARY KEY, version INTEGER, body BLOB)")
done = 0
while done < int(commits) or commits == "0":
    connection.execute("BEGIN IMMEDIATE")
    body = os.urandom(random.randrange(100, 2000))
    row = connection.execute("INSERT INTO row(version, body) VALUES(0, ?)", (body,)).lastrowid
    older = random.randrange(row) + 1
    connection.execute("UPDATE row SET version = version + 1, body = ? WHERE id = ?", (body[::-1], older))
    connection.execute("COMMIT")
    os.write(ledger, b"%d\n" % row)
    done += 1
connection.close()
