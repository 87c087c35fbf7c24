"""Durable SQLite commits in one device write, for Python's sqlite3 module.

    import onewrite
    db = onewrite.connect("app.db")

The database is then in journal mode `onewrite` at synchronous=FULL, or `connect` has raised.
"""

from ._connect import MODES, check, connect, uri
from ._library import OneWriteError, load, loadable_path

__version__ = "0.1.0"
__all__ = ["MODES", "OneWriteError", "check", "connect", "load", "loadable_path", "uri"]
