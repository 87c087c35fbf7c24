"""Test databases: the log and its companions go with them."""

import os
from typing import Any

from django.db.backends.sqlite3 import creation

_COMPANIONS = ("-onewrite", "-onewrite-shm", "-onewrite-lock")


class DatabaseCreation(creation.DatabaseCreation):
    def _destroy_test_db(self, test_database_name: Any, verbosity: int) -> None:
        super()._destroy_test_db(test_database_name, verbosity)
        if test_database_name and not self.is_in_memory_db(test_database_name):
            for suffix in _COMPANIONS:
                path = f"{test_database_name}{suffix}"
                if os.path.exists(path):
                    os.remove(path)
