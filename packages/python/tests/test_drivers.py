"""Drivers other than `sqlite3`, where they are installed. ONEWRITE_TEST_DRIVERS=1 says that they must be."""

import importlib.util
import os
import platform
import unittest

from support import Place, printed

MUST = os.environ.get("ONEWRITE_TEST_DRIVERS") == "1"


def needs(module):
    # Of pysqlite3 there is no wheel for other machines.
    must = MUST and (module != "pysqlite3" or platform.machine() == "x86_64")
    return unittest.skipUnless(must or importlib.util.find_spec(module), f"{module} is not installed")


# The steps of the documents for a module with a SQLite of its own. Code before it defines `loader` and `opened`.
ENTER = """if True:
    import onewrite, sys
    print(onewrite.load(loader()))
    db = opened(onewrite.uri(sys.argv[1]))
    def one(sql):
        return db.cursor().execute(sql).fetchone()[0]
    db.cursor().execute("PRAGMA synchronous=FULL")
    print(onewrite.check(db)["mode"])
    db.cursor().execute("CREATE TABLE t(x)")
    db.cursor().execute("INSERT INTO t VALUES(1)")
    if hasattr(db, "commit"):
        db.commit()
    print(one("PRAGMA journal_mode=WAL"), onewrite.check(db)["mode"], one("SELECT count(*) FROM t"))
"""
EXPECTED = "True\nonewrite\nwal onewrite 1"


class Drivers(Place):
    @needs("apsw")
    def test_apsw(self):
        code = """if True:
            import apsw
            def loader():
                return apsw.Connection(":memory:")
            def opened(uri):
                flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
                return apsw.Connection(uri, flags=flags)
        """
        self.assertEqual(EXPECTED, printed(code + "\n" + ENTER, self.path))

    @needs("pysqlite3")
    def test_pysqlite3(self):
        code = """if True:
            from pysqlite3 import dbapi2
            def loader():
                return dbapi2.connect(":memory:")
            def opened(uri):
                return dbapi2.connect(uri, uri=True)
        """
        self.assertEqual(EXPECTED, printed(code + "\n" + ENTER, self.path))

    @needs("aiosqlite")
    def test_aiosqlite(self):
        code = """if True:
            import aiosqlite, asyncio, onewrite, sys
            async def use():
                async with aiosqlite.Connection(lambda: onewrite.connect(sys.argv[1]), 64) as db:
                    await db.execute("CREATE TABLE t(x)")
                    await db.execute("INSERT INTO t VALUES(1)")
                    await db.commit()
                    status = await db.execute_fetchall("PRAGMA onewrite_status")
                    print('"mode":"onewrite","synchronous":"full"' in status[0][0])
            asyncio.run(use())
        """
        self.assertEqual("True", printed(code, self.path))
        self.assertEqual(1, self.connect().execute("SELECT count(*) FROM t").fetchone()[0])


if __name__ == "__main__":
    unittest.main()
