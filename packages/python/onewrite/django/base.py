"""The database backend. OPTIONS takes `mode`, `synchronous` and `linger`, and all of Django's own for SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any, Dict, Optional, Tuple

from django.db.backends.sqlite3 import base

from .. import _connect, _library
from .client import DatabaseClient
from .creation import DatabaseCreation
from .validation import DatabaseValidation


class DatabaseWrapper(base.DatabaseWrapper):
    client_class = DatabaseClient
    creation_class = DatabaseCreation
    validation_class = DatabaseValidation

    def _words(self) -> Tuple[Optional[str], str]:
        options = self.settings_dict["OPTIONS"]
        return options.get("mode"), options.get("synchronous", "FULL")

    def get_connection_params(self) -> Dict[str, Any]:
        params: Dict[str, Any] = super().get_connection_params()
        # These are not for sqlite3.connect.
        params.pop("mode", None)
        params.pop("synchronous", None)
        params.pop("linger", None)
        return params

    def get_new_connection(self, conn_params: Dict[str, Any]) -> sqlite3.Connection:
        # Tests run in memory unless they are given a name.
        if self.is_in_memory_db():
            return super().get_new_connection(conn_params)
        mode, synchronous = self._words()
        is_loaded = _library.load()
        if is_loaded:
            conn_params = {**conn_params, "database": _connect.uri(conn_params["database"], mode)}
        connection: sqlite3.Connection = super().get_new_connection(conn_params)
        try:
            if is_loaded:
                _connect.enter(connection, mode, synchronous, conn_params.get("timeout", 5.0))
                if "linger" in self.settings_dict["OPTIONS"]:
                    _connect.linger(connection, self.settings_dict["OPTIONS"]["linger"])
            else:
                _connect.enter_stock(connection, synchronous)
        except BaseException:
            connection.close()
            raise
        return connection
