"""Reads a database as it was before the last change, and makes a backup of that version."""
import sys

import onewrite_sqlite as sqlite3

path = sys.argv[1]
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA journal_mode=lsmvbt")
db.executescript("CREATE TABLE t(a); PRAGMA lsmvbt_history=100; INSERT INTO t VALUES ('first')")
(then,) = db.execute("PRAGMA lsmvbt_version").fetchone()
db.execute("UPDATE t SET a = 'second'")
db.execute(f"ATTACH 'file:{path}?version={then}' AS old")
(now,), (before,) = (db.execute(f"SELECT a FROM {schema}.t").fetchone() for schema in ("main", "old"))
db.execute(f"VACUUM old INTO '{path}.backup'")
print(f"now {now}, before {before}")
