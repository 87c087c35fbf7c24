"""connect, uri and check."""

import os
import pathlib
import re
import signal
import sqlite3
import sys
import unittest

import onewrite
from support import Place, printed, start


def one(connection, sql):
    return connection.execute(sql).fetchone()[0]


def commit_a_row(connection):
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
        connection.execute("INSERT INTO t VALUES(1)")


def durable_calls_of_commits(connection, commits=5):
    """How many calls made the commits durable. The first one is not counted: its level is new."""

    def counted():
        connection.execute("INSERT INTO t VALUES(1)")
        status = onewrite.check(connection, synchronous="OFF")
        return status["flushes"] + status["write_through"]

    before = counted()
    return [counted() for _ in range(commits)][-1] - before


class Connect(Place):
    def test_one_line_opens_in_the_mode_at_full(self):
        db = self.connect()
        commit_a_row(db)
        status = onewrite.check(db)
        self.assertEqual(("onewrite", True), (status["mode"], status["guarded"]))
        self.assertEqual(onewrite.__version__, status["version"])
        self.assertEqual(2, one(db, "PRAGMA synchronous"))
        self.assertGreater(status["writes"], 0)

    def test_a_database_keeps_the_mode_that_it_remembers(self):
        for mode in onewrite.MODES:
            with self.subTest(mode=mode):
                path = os.path.join(self.directory, f"remembers {mode}")
                self.connect(path, mode=mode).close()
                db = self.connect(path)
                self.assertEqual(mode, onewrite.check(db)["mode"])
                db.close()
                db = self.connect(path, mode="onewrite")
                self.assertEqual("onewrite", onewrite.check(db)["mode"])
                db.close()

    def test_a_database_that_lingers_is_opened_and_closed_without_a_flush(self):
        code = """if True:
            import onewrite, sys
            uri = f"file:{sys.argv[1]}?onewrite_linger=60s"
            def request(sql):
                db = onewrite.connect(uri)
                db.execute(sql)
                db.commit()
                status = onewrite.check(db)
                db.close()
                return status["flushes"] + status["write_through"] + status["setup_flushes"]
            before = request("CREATE TABLE t(x)")
            for _ in range(50):
                assert request("SELECT count(*) FROM t") == before
            for n in range(50):
                assert request("INSERT INTO t VALUES(1)") == before + n + 1
            with open(sys.argv[1], "rb") as file:
                print(file.read(20)[19])
        """
        self.assertEqual("161", printed(code, self.path))
        # The process closes it when it ends.
        stock = sqlite3.connect(self.path)
        self.assertEqual(50, one(stock, "SELECT count(*) FROM t"))
        stock.close()

    def test_a_uri_names_the_mode_of_a_new_database(self):
        db = self.connect(f"file:{self.path}?journal_mode=direct")
        self.assertEqual("direct", onewrite.check(db)["mode"])

    def test_every_mode_and_level(self):
        for mode in onewrite.MODES:
            for level in ("OFF", "normal", "FULL", "EXTRA"):
                with self.subTest(mode=mode, level=level):
                    path = os.path.join(self.directory, f"{mode} {level}")
                    db = self.connect(path, mode=mode.upper(), synchronous=level)
                    commit_a_row(db)
                    self.assertEqual(mode, onewrite.check(db, mode, level)["mode"])

    def test_a_stock_database_is_taken_over_and_is_stock_again_after_the_last_close(self):
        stock = self.stock()
        stock.execute("CREATE TABLE t(x)")
        stock.close()
        db = self.connect()
        commit_a_row(db)
        db.close()
        stock = self.stock()
        self.assertEqual(1, one(stock, "SELECT count(*) FROM t"))
        stock.close()
        self.assertEqual(1, one(self.connect(), "SELECT count(*) FROM t"))

    def test_names_of_all_kinds(self):
        os.mkdir(os.path.join(self.directory, "a b"))
        for name in ("a b/c?d#e%20f&g.db", "über.db", "file:x.db"):
            path = os.path.join(self.directory, name)
            for form in (path, pathlib.Path(path), os.fsencode(path), "/" + path):
                with self.subTest(form=form):
                    commit_a_row(self.connect(form))
                    self.assertTrue(os.path.exists(path))
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)
        commit_a_row(self.connect("relative.db"))
        self.assertTrue(os.path.exists("relative.db"))

    def test_names_that_are_more_than_a_path_are_refused(self):
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)
        parameters, prefix = 'parameters, but no "file:"', "the prefix of a driver"
        for name, has, usable in (
            ("k.db?vfs=onewrite", parameters, "file:k.db?vfs=onewrite"),
            ("k.db?mode=ro", parameters, "file:k.db?mode=ro"),
            (b"k.db?onewrite_synchronous=full", parameters, "file:k.db?onewrite_synchronous=full"),
            (pathlib.Path("k.db?x=y"), parameters, "file:k.db?x=y"),
            ("sqlite:///k.db", prefix, "k.db"),
            ("sqlite:////a/k.db", prefix, "/a/k.db"),
            ("sqlite+pysqlite:///k.db", prefix, "k.db"),
            ("SQLite3:k.db", prefix, "k.db"),
            ("sqlite:k.db?mode=ro", prefix, "file:k.db?mode=ro"),
            ("sqlite:file:k.db?mode=ro", prefix, "file:k.db?mode=ro"),
        ):
            text = f"{os.fsdecode(name)} has {has}, so it names a file: use {usable}"
            for opened in (onewrite.connect, onewrite.uri):
                with self.subTest(name=name), self.assertRaisesRegex(ValueError, f"^{re.escape(text)}$"):
                    opened(name)
        self.assertEqual([], os.listdir())
        for name in ("./sqlite:k.db", "./file:k.db", "k?.d/b=k.db", "file:q%3Fx=y.db"):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            commit_a_row(self.connect(name))
        made = [name for name in os.listdir() if not re.search("-(onewrite.*|shm)$", name)]
        self.assertEqual(["file:k.db", "k?.d", "q?x=y.db", "sqlite:k.db"], sorted(made))

    def test_a_uri_keeps_its_parameters(self):
        db = self.connect(f"file:{self.path}?onewrite_compression=zstd")
        commit_a_row(db)
        self.assertEqual("zstd", onewrite.check(db)["compression"])
        reader = self.connect(f"file:{self.path}?mode=ro", uri=True)
        self.assertEqual(1, one(reader, "SELECT count(*) FROM t"))
        with self.assertRaisesRegex(sqlite3.OperationalError, "onewrite_synk"):
            self.connect(f"file:{self.path}?onewrite_synk=full")

    def test_wrong_words_are_loud(self):
        with self.assertRaisesRegex(ValueError, "unknown mode 'wladio'.*onewrite, waldio, swal, direct"):
            self.connect(mode="wladio")
        for level in ("FUL", 2, None):
            with self.assertRaisesRegex(ValueError, "unknown synchronous .*OFF, NORMAL, FULL, EXTRA"):
                self.connect(synchronous=level)
        for parameter in ("vfs=unix", "journal_mode=direct"):
            with self.assertRaisesRegex(ValueError, parameter):
                self.connect(f"file:{self.path}?{parameter}", mode="onewrite")
        with self.assertRaisesRegex(ValueError, "unknown mode 'delete'"):
            self.connect(f"file:{self.path}?journal_mode=delete")
        self.assertEqual([], os.listdir(self.directory))

    def test_an_error_names_its_database(self):
        for path, reason in (
            (os.path.join(self.directory, "missing", "db"), "unable to open"),
            (f"file:{self.path}?onewrite_layout=page5k", "unknown value 'page5k'"),
        ):
            with self.subTest(path=path):
                with self.assertRaises(onewrite.OneWriteError) as raised:
                    onewrite.connect(path)
                said = str(raised.exception)
                self.assertIn(reason, said)
                self.assertIn(path.partition("?")[0].replace("file:", ""), said)
                self.assertNotIn("automatic extension", said)

    def test_a_place_that_no_database_can_have(self):
        missing = os.path.join(self.directory, "no such")
        for path in (f"{missing}/app.db", f"file:{missing.replace(' ', '%20')}/app.db"):
            text = f"^{path}: .*: there is no directory {missing}: make it first$"
            self.assertRaisesRegex(onewrite.OneWriteError, text, onewrite.connect, path)
        text = f"^{self.directory}: .*: {self.directory} is a directory: name a file in it$"
        self.assertRaisesRegex(onewrite.OneWriteError, text, onewrite.connect, self.directory)

    def test_the_status_explains_a_write_that_failed(self):
        said = printed(
            """if True:
            import onewrite, resource, sqlite3, sys
            db = onewrite.connect(sys.argv[1])
            db.execute("CREATE TABLE t(x)")
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, resource.RLIM_INFINITY))
            try:
                db.execute("INSERT INTO t VALUES(randomblob(64 << 20))")
            except sqlite3.OperationalError as error:
                print(error)
            db.rollback()
            print(onewrite.check(db)["error"])
            """,
            self.path,
        )
        text, error = said.splitlines()
        self.assertEqual("disk I/O error", text)
        self.assertRegex(error, f"^cannot write {self.path}-onewrite at byte .* allows no larger file$")

    def test_memory_has_no_journal(self):
        for path in (":memory:", "", "sqlite://", "file::memory:", "file:x?mode=memory&cache=shared"):
            with self.fails("in memory"):
                self.connect(path)

    def test_a_connection_of_any_kind(self):
        class Own(sqlite3.Connection):
            def cursor(self, *arguments):
                cursor = super().cursor(*arguments)
                cursor.row_factory = lambda _, row: {"row": row}
                return cursor

        db = self.connect(factory=Own, isolation_level=None, check_same_thread=False)
        db.text_factory = bytes
        self.assertIsInstance(db, Own)
        self.assertEqual("onewrite", onewrite.check(db)["mode"])

    @unittest.skipIf(sys.version_info < (3, 12), "autocommit is new in Python 3.12")
    def test_transactions_of_pep_249(self):
        db = self.connect(autocommit=False)
        self.assertTrue(db.in_transaction)
        commit_a_row(db)
        self.assertFalse(db.autocommit)

    def test_a_stock_connection_in_the_way_is_named(self):
        stock = self.stock()
        stock.execute("CREATE TABLE t(x)")
        stock.execute("BEGIN IMMEDIATE")
        with self.fails("cannot change into onewrite mode", "another connection"):
            self.connect(timeout=0.1)
        stock.execute("ROLLBACK")
        stock.execute("PRAGMA journal_mode=WAL")
        one(stock, "SELECT count(*) FROM t")
        with self.fails("cannot change into onewrite mode", "another connection"):
            self.connect(timeout=0.1)

    def test_processes_that_all_connect_first(self):
        code = """if True:
            import onewrite, sys
            sys.stdin.readline()
            db = onewrite.connect(sys.argv[1])
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS t(x)")
                db.execute("INSERT INTO t VALUES(1)")
            onewrite.check(db)
        """
        processes = [start(code, self.path) for _ in range(6)]
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            _, errors = process.communicate(timeout=60)
            self.assertEqual(0, process.returncode, errors)
        self.assertEqual(6, one(self.connect(), "SELECT count(*) FROM t"))


class Durable(Place):
    def test_a_kill_loses_no_commit_and_stock_sqlite_is_refused(self):
        code = """if True:
            import onewrite, sys
            db = onewrite.connect(sys.argv[1], isolation_level=None)
            db.execute("CREATE TABLE t(x)")
            for row in range(1 << 20):
                db.execute("INSERT INTO t VALUES(?)", (row,))
                print(row, flush=True)
        """
        process = start(code, self.path)
        acknowledged = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        # The last line may be cut short.
        acknowledged += process.communicate()[0].split("\n")[:-1]
        self.assertEqual(-signal.SIGKILL, process.returncode)
        with self.assertRaisesRegex(sqlite3.DatabaseError, "file is not a database"):
            self.stock().execute("SELECT count(*) FROM t")
        db = self.connect()
        rows = [row for (row,) in db.execute("SELECT x FROM t ORDER BY rowid")]
        self.assertEqual(list(range(len(rows))), rows)
        self.assertGreaterEqual(len(rows), len(acknowledged))
        self.assertEqual("ok", one(db, "PRAGMA integrity_check"))


class Floor(Place):
    """onewrite_synchronous holds, whatever a program says after `connect`."""

    def lowered(self, name, floor, **keywords):
        db = self.connect(f"file:{self.path}{name}?{floor}", isolation_level=None, **keywords)
        db.execute("CREATE TABLE t(x)")
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    def test_a_program_that_says_normal_commits_at_full(self):
        for mode in onewrite.MODES:
            for level in ("full", "extra"):
                with self.subTest(mode=mode, level=level):
                    db = self.lowered(mode + level, f"onewrite_synchronous={level}", mode=mode)
                    self.assertEqual(level, onewrite.check(db, synchronous=level)["synchronous"])
                    self.assertGreaterEqual(durable_calls_of_commits(db), 5)

    def test_a_pragma_sets_it_on_an_open_connection(self):
        db = self.lowered("", "")
        self.assertEqual(0, durable_calls_of_commits(db))
        db.execute("PRAGMA onewrite_synchronous=full")
        self.assertEqual("full", onewrite.check(db)["synchronous"])
        self.assertGreaterEqual(durable_calls_of_commits(db), 5)

    def test_the_environment_sets_it_for_each_connection(self):
        code = """if True:
            import onewrite, sys
            from test_connect import durable_calls_of_commits
            for name in sys.argv[1:]:
                db = onewrite.connect(name, isolation_level=None)
                db.execute("CREATE TABLE t(x)")
                db.execute("PRAGMA synchronous=NORMAL")
                print(onewrite.check(db, synchronous="OFF")["synchronous"], durable_calls_of_commits(db) >= 5)
        """
        names = [f"{self.path} {number}" for number in range(2)]
        self.assertEqual("full True\nfull True", printed(code, *names, ONEWRITE_SYNCHRONOUS="full"))
        names = [f"{self.path} {number}" for number in range(2, 4)]
        self.assertEqual("normal False\nnormal False", printed(code, *names))


class Check(Place):
    def test_another_vfs(self):
        with self.fails("does not use onewrite", "another VFS"):
            onewrite.check(self.stock())
        with self.fails("does not use onewrite"):
            onewrite.check(self.stock(":memory:"))

    def test_another_mode(self):
        with self.fails("is in waldio mode, not in onewrite"):
            onewrite.check(self.connect(mode="waldio"), "onewrite")

    def test_a_mode_of_sqlite(self):
        db = self.connect()
        self.assertEqual("delete", one(db, "PRAGMA journal_mode=delete"))
        with self.fails("is in delete mode, not in one of onewrite"):
            onewrite.check(db)

    def test_a_lower_level(self):
        db = self.connect(synchronous="NORMAL")
        with self.fails("synchronous is NORMAL, not FULL"):
            onewrite.check(db)
        onewrite.check(db, synchronous="NORMAL")

    def test_settings_that_lose_commits(self):
        db = self.connect()
        one(db, "PRAGMA onewrite_sync=normal")
        with self.fails("onewrite_sync=normal", "power cut"):
            onewrite.check(db)
        db = self.connect(os.path.join(self.directory, "groups"), mode="waldio")
        one(db, "PRAGMA onewrite_group_synch='4,2'")
        with self.fails("onewrite_group_synch=4,2", "power cut"):
            onewrite.check(db, "waldio")

    def test_a_program_that_asks_for_wal_keeps_the_mode(self):
        for mode in onewrite.MODES:
            with self.subTest(mode=mode):
                path = os.path.join(self.directory, mode)
                # The second connection does not name it: the database remembers.
                for named in (mode, None):
                    db = self.connect(path, mode=named)
                    self.assertEqual("wal", one(db, "PRAGMA journal_mode=WAL"))
                    commit_a_row(db)
                    onewrite.check(db, mode)
                    db.close()

    def test_the_reason_of_a_mode_that_is_kept_out(self):
        db = self.connect()
        commit_a_row(db)
        db.close()
        idle = self.stock()
        one(idle, "SELECT count(*) FROM t")
        onewrite.load()
        db = sqlite3.connect(f"file:{self.path}?vfs=onewrite", uri=True, timeout=0)
        self.addCleanup(db.close)
        one(db, "SELECT count(*) FROM t")
        with self.fails("is not in onewrite mode", "stock SQLite"):
            onewrite.check(db)
        with self.fails("cannot change into onewrite mode", "stock SQLite"):
            self.connect(timeout=0)


if __name__ == "__main__":
    unittest.main()
