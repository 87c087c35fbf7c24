"""Copies of a database that a writer goes on with: which are whole, and which are not."""

import contextlib
import os
import sqlite3
import unittest

import onewrite
from support import MOST_SECONDS, Place, Writer, run

COMMAND = os.environ["ONEWRITE_COMMAND"]
LOGS = {"onewrite": "app.db-onewrite", "direct": "app.db-wal"}


class Copies(Place):
    """Each on a Btrfs of its own, in a subvolume."""

    def setUp(self):
        super().setUp()
        image, self.mounted = self.place / "image", self.place / "mounted"
        self.mounted.mkdir()
        with open(image, "wb") as file:
            file.truncate(256 << 20)
        run("mkfs.btrfs", "--quiet", image)
        # The loop device goes when the file system is unmounted, or when the test's mount namespace ends.
        run("mount", "-o", "loop", image, self.mounted)
        self.addCleanup(run, "umount", "--lazy", self.mounted)

    @contextlib.contextmanager
    def in_use(self, mode):
        """A database in use, with its writer."""
        volume = self.mounted / mode
        run("btrfs", "subvolume", "create", volume)
        writer = Writer(self, volume / "app.db", mode)
        try:
            writer.wait_for_commits(20)
            yield volume / "app.db", writer
            writer.fails_if_it_ended()
        finally:
            writer.kill()
            writer.notes.unlink(missing_ok=True)

    def assert_whole(self, acknowledged, path, mode=None):
        """The copy is of a moment after these commits."""
        rows = self.rows(path, mode)
        self.assert_has(acknowledged, rows)
        self.assertEqual(list(range(1, len(rows) + 1)), [row[0] for row in rows])
        # Each transaction adds a row, and raises a version.
        self.assertEqual(len(rows), sum(row[1] for row in rows))

    def test_a_backup(self):
        for mode in LOGS:
            with self.subTest(mode=mode), self.in_use(mode) as (database, writer):
                acknowledged, copy = writer.acknowledged(), database.with_name("copy.db")
                run(COMMAND, "backup", database, copy)
                self.assert_whole(acknowledged, copy, "stock")

    def test_vacuum_into(self):
        for mode in LOGS:
            with self.subTest(mode=mode), self.in_use(mode) as (database, writer):
                acknowledged, copy = writer.acknowledged(), database.with_name("copy.db")
                with contextlib.closing(onewrite.connect(database, mode=mode, timeout=MOST_SECONDS)) as connection:
                    connection.execute("VACUUM INTO ?", (str(copy),))
                self.assert_whole(acknowledged, copy, "stock")

    def test_a_snapshot_of_the_file_system(self):
        for mode in LOGS:
            with self.subTest(mode=mode), self.in_use(mode) as (database, writer):
                acknowledged, snapshot = writer.acknowledged(), self.mounted / f"{mode} snapshot"
                run("btrfs", "subvolume", "snapshot", database.parent, snapshot)
                self.assert_whole(acknowledged, snapshot / "app.db")

    def test_clones_under_a_read_transaction(self):
        for mode in LOGS:
            with self.subTest(mode=mode), self.in_use(mode) as (database, writer):
                clones = self.mounted / f"{mode} clones"
                clones.mkdir()
                with contextlib.closing(onewrite.connect(database, mode=mode, timeout=MOST_SECONDS)) as connection:
                    connection.execute("BEGIN")
                    connection.execute("SELECT count(*) FROM row").fetchone()
                    acknowledged = writer.acknowledged()
                    for file in ("app.db", LOGS[mode]):
                        run("cp", "--reflink=always", database.with_name(file), clones)
                    connection.execute("COMMIT")
                self.assert_whole(acknowledged, clones / "app.db", "stock" if mode == "direct" else None)

    def test_nothing_opens_a_clone_of_the_database_alone(self):
        with self.in_use("onewrite") as (database, _):
            clone = self.mounted / "alone.db"
            run("cp", "--reflink=always", database, clone)
            with self.assertRaisesRegex(sqlite3.DatabaseError, "file is not a database"):
                self.rows(clone, "stock")
            with self.assertRaisesRegex(sqlite3.OperationalError, "it is missing"):
                self.rows(clone)

    def test_a_clone_after_the_last_close(self):
        for mode in LOGS:
            with self.subTest(mode=mode):
                database, clone = self.mounted / f"{mode}.db", self.mounted / "clone.db"
                writer = Writer(self, database, mode, commits=20)
                writer.wait_for_its_end()
                run("cp", "--reflink=always", database, clone)
                self.assert_whole(writer.acknowledged(), clone, "stock")
                writer.notes.unlink()


if __name__ == "__main__":
    unittest.main()
