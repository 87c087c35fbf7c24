"""Python's sqlite3 on the SQLite of onewrite, with both B-tree engines: import onewrite_sqlite as sqlite3

It must come before anything else that imports sqlite3 or loads SQLite. Python's sqlite3 is linked with
libsqlite3.so.0. The loader takes one that is loaded already, and this module loads its own first.
"""
import ctypes
import pathlib
import sys

__version__ = "0.1.0"
__all__ = []

LIBRARY = str(pathlib.Path(__file__).resolve().parent / "libsqlite3.so.0")
# What only this SQLite says among PRAGMA compile_options.
_MARK = "EXTRA_INIT=lsmvbtExtraInit"


def _load():
    was_there = "_sqlite3" in sys.modules
    if not was_there:
        ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
    import sqlite3

    connection = sqlite3.connect(":memory:")
    options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    if _MARK in options:
        return sqlite3
    if was_there:
        raise ImportError("sqlite3 was imported before onewrite_sqlite, with another SQLite: import onewrite_sqlite first")
    raise ImportError(
        f"the sqlite3 of {sys.executable} has another SQLite, {sqlite3.sqlite_version}: it is linked statically, or "
        "something in this process has loaded libsqlite3.so.0 before. Use a Python that is linked with libsqlite3.so.0, "
        f"as distributions' are, import onewrite_sqlite first, or start it with LD_PRELOAD={LIBRARY}"
    )


_sqlite3 = _load()
from sqlite3 import *  # noqa: E402,F401,F403
from sqlite3 import dbapi2  # noqa: E402,F401


def __getattr__(name):
    """Names that sqlite3 does not export by *, such as sqlite3.version."""
    return getattr(_sqlite3, name)


def __dir__():
    return sorted({*globals(), *dir(_sqlite3)})
