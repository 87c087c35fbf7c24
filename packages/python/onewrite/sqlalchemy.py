"""onewrite for SQLAlchemy.

    engine = onewrite.sqlalchemy.enable(create_engine("sqlite:///app.db"))
"""

from __future__ import annotations

import warnings
from typing import Any, Optional

from sqlalchemy import event
from sqlalchemy.pool import NullPool

from . import _connect


def enable(engine: Any, mode: Optional[str] = None, synchronous: str = "FULL") -> Any:
    """Makes every connection of an engine one of `onewrite.connect`. Call it before the first use.

    Returns the engine. Warns if the engine has no pool, because opening and closing costs flushes.
    SQLAlchemy before 2.0 has none for SQLite unless `poolclass=QueuePool` is given.
    """
    if (engine.dialect.name, engine.dialect.driver) != ("sqlite", "pysqlite"):
        raise ValueError(f"onewrite needs SQLAlchemy's driver pysqlite, not {engine.url.drivername}")
    _connect._mode_or_none(mode), _connect._level(synchronous)
    if isinstance(engine.pool, NullPool):
        warnings.warn(
            "this engine opens and closes the database for each use, which costs flushes: give "
            "create_engine poolclass=sqlalchemy.pool.QueuePool",
            RuntimeWarning,
            stacklevel=2,
        )

    @event.listens_for(engine, "do_connect")
    def opened(_dialect: Any, _record: Any, arguments: Any, parameters: Any) -> Any:
        return _connect.connect(*arguments, **{**parameters, "mode": mode, "synchronous": synchronous})

    return engine
