"""The installed module: it is sqlite3, on our SQLite, and says why where it cannot be."""
import pathlib
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
