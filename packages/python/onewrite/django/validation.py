"""What `manage.py check --database default` and `migrate` say of the settings."""

from __future__ import annotations

import os
from typing import Any, List

from django.core import checks
from django.db.backends.base.validation import BaseDatabaseValidation


class DatabaseValidation(BaseDatabaseValidation):
    def check(self, **kwargs: Any) -> List[checks.CheckMessage]:
        found: List[checks.CheckMessage] = list(super().check(**kwargs))
        settings = self.connection.settings_dict
        lingers = "linger" in settings["OPTIONS"] or "ONEWRITE_LINGER" in os.environ
        # Django's default. A 0 that somebody wrote looks the same.
        if settings["CONN_MAX_AGE"] == 0 and not lingers and not self.connection.is_in_memory_db():
            found.append(
                checks.Warning(
                    f"The database {self.connection.alias!r} is closed after each request, which costs flushes.",
                    hint='Set "CONN_MAX_AGE": None. Under ASGI, set "OPTIONS": {"linger": "5s"} or silence this check.',
                    id="onewrite.W001",
                )
            )
        return found
