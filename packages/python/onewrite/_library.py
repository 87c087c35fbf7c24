"""Finds the extension, and loads it into the SQLite of this process."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import threading
import warnings
from typing import Any

from ._elf import why_not

# The command `onewrite` reads the same variable.
LIBRARY_VARIABLE = "ONEWRITE_EXTENSION_LIBRARY"
UPGRADE_VARIABLE = "ONEWRITE_UPGRADE_WAL"
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")

ONLY_LINUX = "onewrite runs on Linux only"
_ENABLE_LOAD_EXTENSION = 1005  # SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION
_lock = threading.Lock()


class OneWriteError(sqlite3.OperationalError):
    """onewrite is not in use as it was asked for. The text has the reason."""


def is_supported() -> bool:
    return sys.platform == "linux"


def loadable_path() -> str:
    """The path of the loadable extension, for other drivers and languages."""
    named = os.environ.get(LIBRARY_VARIABLE)
    path = named or os.path.join(PROGRAMS, "libonewrite.so")
    if os.path.isfile(path):
        return os.path.abspath(path)
    if named:
        raise OneWriteError(f"{LIBRARY_VARIABLE}: there is no file {path}")
    raise OneWriteError(
        f"this package has no extension ({path}): install the wheel for this machine, or name the "
        f"library in {LIBRARY_VARIABLE}"
    )


def load(connection: Any = None) -> bool:
    """Makes the VFS `onewrite` available to every connection that this process opens later.

    A module with a SQLite of its own, such as APSW or pysqlite3, passes one of its connections. That
    connection may load no further extensions afterwards.

    A program that asks for WAL keeps the mode of onewrite, because this sets ONEWRITE_UPGRADE_WAL
    unless the environment has it. Returns whether the VFS is there: False, with a warning, on systems
    other than Linux. Raises OneWriteError if it cannot be loaded.
    """
    if not is_supported():
        warnings.warn(f"{ONLY_LINUX}: databases are in stock WAL here", RuntimeWarning, stacklevel=2)
        return False
    with _lock:
        os.environ.setdefault(UPGRADE_VARIABLE, "onewrite")
        if connection is not None:
            _load_by(connection)
        elif not _has_vfs():
            _load()
    return True


def _load() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        if hasattr(connection, "enable_load_extension"):
            _load_by(connection)
        else:
            _load_by_ctypes()
    finally:
        connection.close()
    if not _has_vfs():
        raise OneWriteError(
            "the extension was loaded into another SQLite than the one that the module sqlite3 uses"
        )


def _has_vfs() -> bool:
    try:
        sqlite3.connect("file::memory:?vfs=onewrite", uri=True).close()
    except sqlite3.OperationalError as error:
        if "no such vfs" in str(error):
            return False
        raise
    return True


def _whole_library() -> str:
    path = loadable_path()
    reason = why_not(path)
    if reason is not None:
        raise OneWriteError(
            f"cannot load {path}: {reason}: install onewrite again, or name another library in {LIBRARY_VARIABLE}"
        )
    return path


def _load_by(connection: Any) -> None:
    path = _whole_library()
    try:
        connection.enable_load_extension(True)
        try:
            connection.load_extension(path)
        finally:
            connection.enable_load_extension(False)
    except Exception as error:
        raise OneWriteError(f"cannot load {_reason(path, error)}") from error


def _reason(path: str, error: Exception) -> str:
    """SQLite also tries the path with ".so" after it, and tells only why that failed."""
    try:
        ctypes.CDLL(path)
    except OSError as reason:
        return str(reason) if path in str(reason) else f"{path}: {reason}"
    return f"{path}: {error}"


def _load_by_ctypes() -> None:
    """For a Python that was built without `enable_load_extension`.

    Names are looked up in the module's library and those that it is linked with. So they belong to the
    SQLite that the module uses.
    """
    import _sqlite3

    path = _whole_library()
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    try:
        sqlite_open, close = library.sqlite3_open, library.sqlite3_close
        configure, load_extension = library.sqlite3_db_config, library.sqlite3_load_extension
        free = library.sqlite3_free
    except AttributeError as error:
        raise OneWriteError(
            f"this Python's sqlite3 loads no extensions, and its SQLite cannot be reached ({error}): use "
            "a Python that was built with --enable-loadable-sqlite-extensions"
        ) from error
    database, message = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        code = sqlite_open(b":memory:", ctypes.byref(database))
        if code == 0:
            code = configure(database, _ENABLE_LOAD_EXTENSION, 1, None)
        if code == 0:
            code = load_extension(database, os.fsencode(path), None, ctypes.byref(message))
        if code != 0:
            said = ctypes.string_at(message.value).decode() if message.value else f"SQLite's code {code}"
            raise OneWriteError(f"cannot load {_reason(path, OneWriteError(said))}")
    finally:
        free(message)
        close(database)
