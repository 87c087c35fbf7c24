"""Litestream next to writers in mode `direct`. It reads SQLite's own -wal file, and makes checkpoints."""

import contextlib
import datetime
import sqlite3
import unittest

import onewrite
from litestream import Litestream, reset
from support import Place, Writer, eventually


class Replicate(Place):
    def setUp(self):
        super().setUp()
        # Litestream puts a database into WAL, and keeps it open. So the mode comes first.
        Writer(self, self.database, "direct", commits=1).wait_for_its_end()

    def start(self, commits=0, replica="replica"):
        litestream, writer = Litestream(self, replica), Writer(self, self.database, "direct", commits)
        eventually("Litestream's socket", litestream.is_ready)
        return litestream, writer

    def source(self):
        rows = self.rows(self.database, "direct")
        self.assertTrue(rows)
        return rows

    def stop(self, litestream):
        """Stops Litestream when the replica has all."""
        litestream.sync()
        self.assertEqual(0, litestream.stop(), litestream.log())

    def test_both_are_killed_and_the_replica_is_a_new_one(self):
        for number in range(5):
            litestream, writer = self.start(replica=f"replica-{number}")
            eventually("a first file in the replica", litestream.has_a_file)
            writer.wait_for_commits(self.random.randrange(5, 60))
            for program in self.random.sample((litestream, writer), 2):
                program.kill()
            self.assert_is_of_a_moment(litestream.restore(f"{number}.db"))
            reset(self.place, self.database)
        litestream, writer = self.start(commits=10, replica="last-replica")
        writer.wait_for_its_end()
        rows = self.source()
        self.stop(litestream)
        self.assert_has(writer.acknowledged(), rows)
        self.assert_same(rows, self.rows(litestream.restore(), "stock"))

    def assert_is_of_a_moment(self, copy):
        """The copy holds whole transactions: each adds a row, and raises a version."""
        rows = self.rows(copy, "stock")
        self.assertEqual(list(range(1, len(rows) + 1)), [row[0] for row in rows])
        self.assertEqual(len(rows), sum(row[1] for row in rows))

    def test_it_runs_on_while_writers_come_and_go(self):
        litestream, writer = self.start(commits=150)
        writer.wait_for_its_end()
        writer = Writer(self, self.database, "direct", commits=150)
        writer.wait_for_its_end()
        rows = self.source()
        self.stop(litestream)
        self.assert_has(writer.acknowledged(), rows)
        self.assert_same(rows, self.rows(litestream.restore(), "stock"))

    def test_points_in_time(self):
        litestream = Litestream(self)
        points = []
        for _ in range(4):
            writer = Writer(self, self.database, "direct", self.random.randrange(10, 60))
            writer.wait_for_its_end()
            eventually("Litestream's socket", litestream.is_ready)
            transaction = litestream.sync()
            # Litestream notes milliseconds.
            moment = now() + datetime.timedelta(milliseconds=2)
            points.append((transaction, moment, self.source()))
            eventually("a later time", lambda: now() > moment)
            # A sync that began before that moment is over, so none of its files has what comes next.
            litestream.sync()
        self.stop(litestream)

        def restored(*options):
            return self.rows(litestream.restore(*options), "stock")

        for transaction, _, rows in points:
            self.assert_same(rows, restored(f"{transaction}.db", "-txid", f"{transaction:016x}"))
        # The last moment is later than all that the replica has.
        for _, moment, rows in points[:-1]:
            moment = moment.isoformat().replace("+00:00", "Z")
            self.assert_same(rows, restored(f"{moment}.db", "-timestamp", moment))

    def test_it_keeps_a_database_that_it_saw_first(self):
        database = self.place / "other.db"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE row(id INTEGER PRIMARY KEY)")
        self.database = database
        litestream = Litestream(self)
        eventually("Litestream's socket", litestream.is_ready)
        litestream.sync()
        with self.assertRaisesRegex(onewrite.OneWriteError, "another connection"):
            onewrite.connect(database, mode="direct", timeout=0)
        self.stop(litestream)
        onewrite.connect(database, mode="direct", timeout=0).close()


def now():
    return datetime.datetime.now(datetime.timezone.utc)


if __name__ == "__main__":
    unittest.main()
