"""The installed module: it is sqlite3, on our SQLite, and says why where it cannot be."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import onewrite_sqlite


def python(code, *arguments):
    """Runs code in a fresh Python. Returns its output, and its error's last line."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.stdout.strip(), done.stderr.strip().splitlines()[-1:] or [""]


class Module(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = pathlib.Path(scratch.name, "app.db")

    def test_it_has_every_name_of_sqlite3(self):
        import sqlite3

        for name in dir(sqlite3):
            if name.startswith("__"):
                continue
            self.assertIs(getattr(onewrite_sqlite, name), getattr(sqlite3, name), name)
        self.assertTrue(issubclass(onewrite_sqlite.OperationalError, sqlite3.Error))

    def test_stock_databases_stay_stock(self):
        db = onewrite_sqlite.connect(self.path)
        db.execute("CREATE TABLE t(a)")
        db.close()
        self.assertEqual(b"SQLite format 3\0", self.path.read_bytes()[:16])

    def test_all_modes_are_there(self):
        for mode, query in (("lsmvbt", ""), ("onewrite", "?vfs=onewrite"), ("waldio", "?vfs=onewrite"), ("wal", "")):
            path = self.path.with_name(mode)
            db = onewrite_sqlite.connect(f"file:{path}{query}", uri=True)
            self.assertEqual((mode,), db.execute(f"PRAGMA journal_mode={mode}").fetchone())
            db.executescript("CREATE TABLE t(a); INSERT INTO t VALUES(1)")
            self.assertEqual([(1,)], db.execute("SELECT a FROM t").fetchall())
            db.close()

    def backed_up(self, path, query, rows):
        """A database, its backup, and a connection to the database that has read nothing."""
        uri, backup = f"file:{path}{query}", path.with_name("backup")
        db = onewrite_sqlite.connect(uri, uri=True, isolation_level=None)
        db.execute("PRAGMA journal_mode=lsmvbt")
        db.execute("CREATE TABLE t(a)")
        db.executemany("INSERT INTO t VALUES(?)", (("x" * 1200,) for _ in range(rows)))
        db.close()
        shutil.copy(path, backup)
        return uri, backup, onewrite_sqlite.connect(uri, uri=True, isolation_level=None)

    def holds(self, rows, uri):
        db = onewrite_sqlite.connect(uri, uri=True)
        self.assertEqual((rows,), db.execute("SELECT count(*) FROM t").fetchone())
        self.assertEqual(("ok",), db.execute("PRAGMA integrity_check").fetchone())
        db.close()

    def test_a_backup_is_restored_under_the_name_of_an_open_file(self):
        """A VFS over SQLite's own shows no descriptor. The backup was destroyed there by the first commit."""
        code = """if True:
            import onewrite_sqlite as sqlite3, sys
            db = sqlite3.connect(sys.argv[1], uri=True, isolation_level=None)
            for number in range(60): db.execute("INSERT INTO t VALUES(?)", ("n" * 1500,))
        """
        for query in ("", "?vfs=onewrite"):
            path = self.path.with_name(f"restored{len(query)}")
            uri, backup, old = self.backed_up(path, query, 900)
            old.execute("DELETE FROM t WHERE rowid > 20")
            old.execute("VACUUM")
            path.rename(path.with_name("old"))
            backup.rename(path)
            _, error = python(code, uri)
            self.assertIn("opened before the file was replaced", error[0], uri)
            old.close()
            self.assertEqual([""], python(code, uri)[1], uri)
            self.holds(960, uri)

    def test_a_connection_that_read_nothing_before_the_backup_was_restored_is_refused(self):
        code = """if True:
            import onewrite_sqlite as sqlite3, sys
            db = sqlite3.connect(sys.argv[1], uri=True, isolation_level=None)
            db.execute("DELETE FROM t WHERE rowid > 200")
            print("done", flush=True)
            sys.stdin.read()
        """
        for query in ("", "?vfs=onewrite"):
            path = self.path.with_name(f"unused{len(query)}")
            uri, backup, old = self.backed_up(path, query, 300)
            path.rename(path.with_name("old"))
            backup.rename(path)
            command, pipe = [sys.executable, "-c", code, uri], subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
                self.assertEqual("done\n", other.stdout.readline(), uri)
                with self.assertRaises(onewrite_sqlite.OperationalError) as refused:
                    old.execute("INSERT INTO t VALUES(1)")
                other.stdin.close()
            self.assertIn("opened before the file was replaced", str(refused.exception), uri)
            old.close()
            self.holds(200, uri)

    def test_a_killed_process_loses_no_commit(self):
        code = """if True:
            import onewrite_sqlite as sqlite3, os, signal, sys
            db = sqlite3.connect(sys.argv[1], isolation_level=None)
            db.execute("PRAGMA journal_mode=lsmvbt")
            db.execute("CREATE TABLE t(a)")
            for number in range(20): db.execute("INSERT INTO t VALUES(?)", (number,))
            os.kill(os.getpid(), signal.SIGKILL)
        """
        python(code, self.path)
        db = onewrite_sqlite.connect(self.path)
        self.assertEqual((20, "lsmvbt"), db.execute("SELECT count(*) FROM t").fetchone() + db.execute("PRAGMA journal_mode").fetchone())
        self.assertEqual(("ok",), db.execute("PRAGMA integrity_check").fetchone())
        db.close()

    def filled(self, mode):
        """A database in a mode, with an earlier version kept where there are versions."""
        db = onewrite_sqlite.connect(f"file:{self.path.with_name(mode)}", uri=True, isolation_level=None)
        db.execute(f"PRAGMA journal_mode={mode}")
        db.executescript("CREATE TABLE t(a)")
        if mode == "lsmvbt":
            db.execute("PRAGMA lsmvbt_history=10")
        db.executemany("INSERT INTO t VALUES(?)", [(number,) for number in range(100)])
        return db

    def rows(self, db, schema="main"):
        return [row[0] for row in db.execute(f"SELECT a FROM {schema}.t ORDER BY a")]

    def test_a_backup_and_one_of_an_earlier_version(self):
        db = self.filled("lsmvbt")
        (then,) = db.execute("PRAGMA lsmvbt_version").fetchone()
        db.execute("DELETE FROM t WHERE a >= 10")
        db.execute(f"ATTACH 'file:{self.path.with_name('lsmvbt')}?version={then}' AS old")
        for schema, count in (("main", 10), ("old", 100)):
            pages = []
            copy = onewrite_sqlite.connect(self.path.with_name(f"copy-{schema}"))
            db.backup(copy, name=schema, pages=1, progress=lambda _, left, total: pages.append((left, total)))
            self.assertEqual(list(range(count)), self.rows(copy))
            self.assertEqual((0, len(pages)), pages[-1])
            self.assertEqual(("delete",), copy.execute("PRAGMA journal_mode").fetchone())
            copy.close()
        self.assertEqual(list(range(10)), self.rows(db))
        db.close()

    def test_a_backup_over_it_is_refused_and_names_the_way(self):
        db, stock = self.filled("lsmvbt"), self.filled("delete")
        stock.execute("DELETE FROM t WHERE a >= 10")
        with self.assertRaisesRegex(onewrite_sqlite.OperationalError, r"use VACUUM INTO 'file:NAME\?engine=lsmvbt'"):
            stock.backup(db)
        self.assertEqual(list(range(100)), self.rows(db))
        made = self.path.with_name("made")
        stock.execute(f"VACUUM INTO 'file:{made}?engine=lsmvbt'")
        stock.close()
        db.close()
        db = onewrite_sqlite.connect(made)
        self.assertEqual(("lsmvbt",), db.execute("PRAGMA journal_mode").fetchone())
        self.assertEqual(list(range(10)), self.rows(db))
        db.close()

    @unittest.skipIf(sys.version_info < (3, 11), "Connection.serialize is of Python 3.11")
    def test_an_image_is_that_of_a_stock_database(self):
        db = self.filled("lsmvbt")
        image = db.serialize()
        self.assertEqual(b"SQLite format 3\0", image[:16])
        memory = onewrite_sqlite.connect(":memory:")
        memory.deserialize(image)
        self.assertEqual(list(range(100)), self.rows(memory))
        memory.deserialize(self.path.with_name("lsmvbt").read_bytes())
        with self.assertRaisesRegex(onewrite_sqlite.DatabaseError, "file is not a database"):
            self.rows(memory)
        memory.close()
        db.close()

    def test_read_only_after_a_kill_says_what_to_do(self):
        code = """if True:
            import onewrite_sqlite as sqlite3, os, signal, sys
            db = sqlite3.connect(sys.argv[1], isolation_level=None)
            db.executescript("PRAGMA journal_mode=lsmvbt; CREATE TABLE t(a); INSERT INTO t VALUES(0)")
            os.kill(os.getpid(), signal.SIGKILL)
        """
        python(code, self.path)
        reader = onewrite_sqlite.connect(f"file:{self.path}?mode=ro", uri=True)
        with self.assertRaisesRegex(onewrite_sqlite.OperationalError, f"{self.path}: .*open it once for writing"):
            self.rows(reader)
        onewrite_sqlite.connect(self.path).execute("SELECT 1 FROM t").close()
        self.assertEqual([0], self.rows(reader))
        reader.close()

    def test_sqlite3_imported_before_is_refused(self):
        said, error = python("import sqlite3, onewrite_sqlite")
        self.assertEqual(
            ["ImportError: sqlite3 was imported before onewrite_sqlite, with another SQLite: import onewrite_sqlite first"], error
        )

    def test_another_libsqlite3_in_the_process_is_refused(self):
        code = """if True:
            import ctypes, ctypes.util
            ctypes.CDLL("libsqlite3.so.0", mode=ctypes.RTLD_GLOBAL)
            import onewrite_sqlite
        """
        said, error = python(code)
        self.assertIn("has loaded libsqlite3.so.0 before", error[0])

    def test_preloaded_it_serves_plain_sqlite3(self):
        code = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode=lsmvbt').fetchone())"
        done = subprocess.run(
            ["env", f"LD_PRELOAD={onewrite_sqlite.LIBRARY}", sys.executable, "-c", code, self.path], capture_output=True, text=True
        )
        self.assertEqual("lsmvbt", done.stdout.strip(), done.stderr)


if __name__ == "__main__":
    unittest.main()
