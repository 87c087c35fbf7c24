"""Opens databases in a mode of onewrite, and checks that they are in it."""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import time
from typing import Any, Dict, Optional, Tuple, Union
from urllib.parse import parse_qsl, quote

from ._library import ONLY_LINUX, OneWriteError, is_supported, load
from ._reason import reason_and_way_out

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: The journal modes of onewrite.
MODES = ("onewrite", "waldio", "swal", "direct")
_USUAL = MODES[0]

_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")  # by SQLite's numbers
_FULL = _LEVELS.index("FULL")
_BUSY = 5  # SQLITE_BUSY
_RETRY_SECONDS = 0.02

#: What a path begins or ends with that was meant as a URL of SQLAlchemy, or as a URI.
_PREFIX = re.compile(rb"\Asqlite3?(\+\w+)?:(///?)?", re.IGNORECASE)
_PARAMETERS = re.compile(rb"\?[^/]*=")


def connect(
    path: Path, mode: Optional[str] = None, synchronous: str = "FULL", **sqlite3_kwargs: Any
) -> sqlite3.Connection:
    """Opens a database like `sqlite3.connect`, in a journal mode of onewrite.

    Without `mode` it is the one that the database remembers, and `onewrite` for any other database.
    `path` may be a URI (`file:...`), with settings of onewrite as its parameters. The other arguments
    are those of `sqlite3.connect`. Another connection that is in the way is waited for as long as
    `timeout` says.

    Raises OneWriteError with the reason if the database is not in that mode, at `synchronous`, and
    ValueError for an unknown word. On systems other than Linux it warns, and opens in stock WAL.
    """
    mode = _mode_or_none(mode or _mode_of(path))
    _level(synchronous)
    if sqlite3_kwargs.get("autocommit") is False:
        # Python would begin a transaction now, and no mode changes within one.
        opened = connect(path, mode, synchronous, **{**sqlite3_kwargs, "autocommit": True})
        setattr(opened, "autocommit", False)  # since Python 3.12
        return opened
    if not load():
        return _stock(path, synchronous, sqlite3_kwargs)
    sqlite3_kwargs["uri"] = True
    end = time.monotonic() + sqlite3_kwargs.get("timeout", 5.0)
    while True:
        connection = _opened(path, mode, sqlite3_kwargs)
        try:
            enter(connection, mode, synchronous, 0)
            return connection
        except OneWriteError as error:
            # An open connection is in the way of others that wait, too. So each try opens another one.
            connection.close()
            if not _is_busy(error.__cause__) or time.monotonic() >= end:
                raise _of(path, error) from error.__cause__
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _of(path, error) from error
        except BaseException:
            connection.close()
            raise
        time.sleep(_RETRY_SECONDS * (1 + random.random()))


def _opened(path: Path, mode: Optional[str], sqlite3_kwargs: Dict[str, Any]) -> sqlite3.Connection:
    try:
        connection: sqlite3.Connection = sqlite3.connect(uri(path, mode), **sqlite3_kwargs)
        return connection
    except sqlite3.DatabaseError as error:
        raise _of(path, error) from error


def _of(path: Path, error: sqlite3.DatabaseError) -> OneWriteError:
    """The error with the name of its database, and without SQLite's words for how it was found."""
    reason = str(error).replace("automatic extension loading failed: ", "")
    name = os.fsdecode(path)
    is_named = os.path.abspath(name) in reason or reason.startswith(name)
    found = reason_and_way_out(name, reason)
    text = reason if found is None else f"{reason}: {found}"
    return OneWriteError(text if is_named else f"{name}: {text}")


def uri(path: Path, mode: Optional[str] = _USUAL) -> str:
    """The URI that opens a database with onewrite, for other drivers: call `load()` first.

    It changes a database that is in another mode, unless `mode` is None. A path that begins with
    `file:` is a URI already, and keeps its parameters.
    """
    wanted = {"vfs": "onewrite"}
    if mode is not None:
        wanted["journal_mode"] = _mode(mode)
    raw = _raw(path)
    if raw in (b"", b":memory:"):
        raise OneWriteError("a database in memory has no journal: open it with sqlite3.connect")
    if not raw.startswith(b"file:"):
        if raw.startswith(b"/"):
            raw = b"/" + raw.lstrip(b"/")  # two slashes would begin a host's name
        return f"file:{quote(raw)}?{'&'.join(f'{name}={word}' for name, word in wanted.items())}"
    text, parameters = _parsed(raw)
    if text.startswith("file::memory:") or parameters.get("mode") == "memory":
        raise OneWriteError("a database in memory has no journal: open it with sqlite3.connect")
    for name, word in wanted.items():
        named = parameters.get(name)
        if named is None:
            text += f"{'&' if '?' in text else '?'}{name}={word}"
        elif named != word:
            raise ValueError(f"{text} names {name}={named}, and {word} is asked for")
    return text


def _raw(path: Path) -> bytes:
    """The path as bytes. Raises ValueError where it was meant as more than a path: SQLite would make a file of
    that name.
    """
    raw = os.fsencode(path)
    if raw.startswith(b"file:"):
        return raw
    bare = _PREFIX.sub(b"", raw)
    if bare in (b"", b":memory:"):
        return bare
    usable = b"file:" + bare if _PARAMETERS.search(bare) and not bare.startswith(b"file:") else bare
    if usable == raw:
        return raw
    has = "parameters, but no \"file:\"" if bare == raw else "the prefix of a driver"
    raise ValueError(f"{os.fsdecode(raw)} has {has}, so it names a file: use {os.fsdecode(usable)}")


def _parsed(raw: bytes) -> Tuple[str, Dict[str, str]]:
    """A URI without its fragment, and its parameters."""
    text = os.fsdecode(raw).partition("#")[0]
    return text, dict(parse_qsl(text.partition("?")[2], keep_blank_values=True))


def _mode_of(path: Path) -> Optional[str]:
    """The mode that a URI names."""
    raw = os.fsencode(path)
    return _parsed(raw)[1].get("journal_mode") if raw.startswith(b"file:") else None


def enter(connection: Any, mode: Optional[str], synchronous: str, timeout: float) -> Dict[str, Any]:
    """Changes an open connection into a mode, and returns its status. Raises as `connect` does."""
    mode = _mode_or_none(mode)
    end = time.monotonic() + timeout
    while True:
        try:
            _value(connection, f"PRAGMA journal_mode={mode or _remembered(connection)}")
            break
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= end:
                raise OneWriteError(str(error)) from error
        time.sleep(_RETRY_SECONDS)
    _value(connection, f"PRAGMA synchronous={_LEVELS[_level(synchronous)]}")
    return check(connection, mode, synchronous)


def _remembered(connection: Any) -> str:
    """The mode that the database remembers, or the usual one if it remembers none of ours."""
    _value(connection, "PRAGMA journal_mode")  # opens the file
    answer = _value(connection, "PRAGMA onewrite_status")
    status: Dict[str, Any] = {} if answer is None else json.loads(answer)
    kept_out: Dict[str, Any] = status.get("kept_out_of") or {}
    return str(status.get("mode") or kept_out.get("mode") or _USUAL)


def linger(connection: Any, time: str) -> None:
    """The process keeps the database open for so long after its last connection. Raises OneWriteError for
    what onewrite_linger does not take, and in a mode without it.
    """
    quoted = str(time).replace("'", "''")
    try:
        _value(connection, f"PRAGMA onewrite_linger='{quoted}'")
    except sqlite3.OperationalError as error:
        raise OneWriteError(str(error)) from error


def check(connection: Any, mode: Optional[str] = None, synchronous: str = "FULL") -> Dict[str, Any]:
    """Returns `PRAGMA onewrite_status` if the connection's database is in the mode, and its commits are
    at least as durable as `synchronous`. Raises OneWriteError with the reason otherwise. Without `mode`
    any mode of onewrite will do.

    Any connection of a Python driver will do: it needs `cursor()`.
    """
    mode, level = _mode_or_none(mode), _level(synchronous)
    answer = _value(connection, "PRAGMA onewrite_status")
    if answer is None:
        why = "SQLite opened it with another VFS; use onewrite.connect, or onewrite.load and onewrite.uri"
        raise OneWriteError(f"the connection does not use onewrite: {why if is_supported() else ONLY_LINUX}")
    status: Dict[str, Any] = json.loads(answer)
    _check_mode(connection, status, mode)
    _check_level(status, level)
    return status


def _check_mode(connection: Any, status: Dict[str, Any], mode: Optional[str]) -> None:
    kept_out = status.get("kept_out_of")
    if kept_out is not None:
        raise OneWriteError(f"the database is not in {mode or kept_out['mode'] or _USUAL} mode: {kept_out['why']}")
    if status["mode"] is None or status["mode"] != (mode or status["mode"]):
        found = status["mode"] or _value(connection, "PRAGMA journal_mode") or "unknown"
        raise OneWriteError(
            f"the database is in {_text(found)} mode, not in {mode or 'one of onewrite'}: run PRAGMA "
            f"journal_mode={mode or _USUAL} on it"
        )
    if status.get("poisoned"):
        raise OneWriteError(f"the log cannot be used any more: {status['poisoned']}")


def _check_level(status: Dict[str, Any], level: int) -> None:
    """The status has the level that holds: onewrite_synchronous may raise the one of the pragma."""
    found = _level(status["synchronous"])
    if found < level:
        raise OneWriteError(
            f"synchronous is {_LEVELS[found]}, not {_LEVELS[level]}: run PRAGMA synchronous={_LEVELS[level]} on "
            "each connection"
        )
    if level < _FULL:
        return
    for setting, weak in (("sync", "normal"), ("group_synch", status.get("group_synch"))):
        if weak is not None and status.get(setting) == weak:
            raise OneWriteError(
                f"onewrite_{setting}={weak} lets a power cut lose commits: it does not go with "
                f"synchronous={_LEVELS[level]}"
            )


def _stock(path: Path, synchronous: str, sqlite3_kwargs: Dict[str, Any]) -> sqlite3.Connection:
    if _raw(path).startswith(b"file:"):
        sqlite3_kwargs["uri"] = True
    connection: sqlite3.Connection = sqlite3.connect(path, **sqlite3_kwargs)
    enter_stock(connection, synchronous)
    return connection


def enter_stock(connection: Any, synchronous: str) -> None:
    """Stock WAL, on systems other than Linux."""
    _value(connection, "PRAGMA journal_mode=WAL")
    _value(connection, f"PRAGMA synchronous={_LEVELS[_level(synchronous)]}")


def _mode(word: str) -> str:
    return MODES[_place(word, "mode", MODES)]


def _mode_or_none(word: Optional[str]) -> Optional[str]:
    return None if word is None else _mode(word)


def _level(word: str) -> int:
    return _place(word, "synchronous", _LEVELS)


def _place(word: str, what: str, words: Tuple[str, ...]) -> int:
    for place, known in enumerate(words):
        if isinstance(word, str) and word.lower() == known.lower():
            return place
    raise ValueError(f"unknown {what} {word!r}: it is one of {', '.join(words)}")


def _value(connection: Any, sql: str) -> Any:
    """The first value of the first row, whatever rows the connection makes."""
    cursor = connection.cursor()
    try:
        if hasattr(cursor, "row_factory"):
            cursor.row_factory = None
        cursor.execute(sql)
        row = cursor.fetchone()
        return None if row is None else row[0]
    finally:
        cursor.close()


def _text(value: Any) -> str:
    """`text_factory` may make bytes of it."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_busy(error: Optional[BaseException]) -> bool:
    code = getattr(error, "sqlite_errorcode", None)  # since Python 3.11
    if code is not None:
        return bool(code & 0xFF == _BUSY)
    return any(words in str(error) for words in ("is locked", "another connection", "has it open"))
