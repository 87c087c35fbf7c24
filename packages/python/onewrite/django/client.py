"""`manage.py dbshell`: stock sqlite3 cannot read a database that is in use, `onewrite shell` can."""

import sys
from typing import Any, List, Tuple

from django.db.backends.sqlite3 import client

from .._library import is_supported


class DatabaseClient(client.DatabaseClient):
    @classmethod
    def settings_to_cmd_args_env(cls, settings_dict: Any, parameters: Any) -> Tuple[List[str], None]:
        arguments, _ = super().settings_to_cmd_args_env(settings_dict, parameters)
        if not is_supported():
            return arguments, None
        return [sys.executable, "-m", "onewrite", "shell", *map(str, arguments[1:])], None
