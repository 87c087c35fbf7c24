"""peer.py OWN OTHER FILE COMMITS

One of two peers that exchange changesets. Each transaction changes an item in OWN, and keeps the changeset.
After its COMMIT the changeset's number goes into FILE. Now and then the peer applies what OTHER has kept.
It ends after COMMITS transactions; 0 means never.
"""

import contextlib
import os
import random
import sys

import apsw
import onewrite

ITEMS = 50
SCHEMA = """
    CREATE TABLE IF NOT EXISTS item(id INTEGER PRIMARY KEY, stamp INTEGER, body BLOB);
    CREATE TABLE IF NOT EXISTS changeset(number INTEGER PRIMARY KEY, bytes BLOB);
    CREATE TABLE IF NOT EXISTS applied(number INTEGER);
    CREATE TABLE IF NOT EXISTS clock(now INTEGER);
"""
CHANGE = """
    INSERT INTO item VALUES(?1, ?2, ?3) ON CONFLICT(id) DO UPDATE SET stamp = ?2, body = ?3
"""


class Peer:
    """A database in mode `onewrite`, with the SQLite of APSW."""

    def __init__(self, path):
        with contextlib.closing(apsw.Connection(":memory:")) as loader:
            onewrite.load(loader)
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self.connection = apsw.Connection(onewrite.uri(path), flags=flags)
        self.connection.set_busy_timeout(100_000)
        self.connection.execute("PRAGMA synchronous=FULL")
        self.is_left = "left" in os.path.basename(path)
        self.connection.execute("BEGIN IMMEDIATE;" + SCHEMA + "COMMIT")
        onewrite.check(self.connection, "onewrite")

    def close(self):
        self.connection.close()

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()

    def value(self, sql):
        return self.connection.execute(sql).get

    def change(self, item, body):
        """Changes an item, and keeps the changeset in the same transaction. Returns its number."""
        with self.transaction():
            # Each change has a stamp of its own, later than all that this peer has seen.
            now = max(self.value("SELECT max(now) FROM clock") or 0, self.value("SELECT max(stamp) FROM item") or 0)
            stamp = (now // 2 + 1) * 2 + self.is_left
            self.connection.execute("DELETE FROM clock; INSERT INTO clock VALUES(?)", (stamp,))
            session = apsw.Session(self.connection, "main")
            session.attach("item")
            self.connection.execute(CHANGE, (item, stamp, body))
            bytes = session.changeset()
            session.close()
            self.connection.execute("INSERT INTO changeset(bytes) VALUES(?)", (bytes,))
            return self.connection.last_insert_rowid()

    def receive(self, other):
        """Applies what another peer has kept since the last time, each changeset in a transaction."""
        seen = self.value("SELECT max(number) FROM applied") or 0
        later = other.connection.execute("SELECT * FROM changeset WHERE number > ? ORDER BY number", (seen,)).fetchall()
        for number, bytes in later:
            with self.transaction():
                # Another process may have been here.
                if (self.value("SELECT max(number) FROM applied") or 0) < number:
                    apsw.Changeset.apply(bytes, self.connection, conflict=later_wins)
                    self.connection.execute("DELETE FROM applied; INSERT INTO applied VALUES(?)", (number,))

    @contextlib.contextmanager
    def transaction(self):
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


def later_wins(reason, change):
    """Both peers changed the item: the change with the greater stamp stays."""
    if reason not in (apsw.SQLITE_CHANGESET_DATA, apsw.SQLITE_CHANGESET_CONFLICT):
        return apsw.SQLITE_CHANGESET_ABORT
    is_later = change.new[1] > change.conflict[1]
    return apsw.SQLITE_CHANGESET_REPLACE if is_later else apsw.SQLITE_CHANGESET_OMIT


def main():
    own, other, file, commits = sys.argv[1:]
    peer, other = Peer(own), Peer(other)
    ledger = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done = 0
    while done < int(commits) or commits == "0":
        number = peer.change(random.randrange(ITEMS), os.urandom(random.randrange(10, 500)))
        os.write(ledger, b"%d\n" % number)
        if random.random() < 0.3:
            peer.receive(other)
        done += 1
    other.close()
    peer.close()


if __name__ == "__main__":
    main()
