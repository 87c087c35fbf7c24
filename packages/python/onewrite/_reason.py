"""Why SQLite cannot open or write a database: its own words tell neither the place nor the way out."""

from __future__ import annotations

import os
import re
from typing import Optional
from urllib.parse import unquote

_ABOUT_FILES = re.compile("unable to open|read-?only")


def reason_and_way_out(name: str, said: str) -> Optional[str]:
    """Of a path or a URI, after an error. None where the files tell nothing."""
    if not _ABOUT_FILES.search(said):
        return None
    if name.startswith("file:"):
        name = unquote(re.split("[?#]", name[len("file:"):])[0])
    path = os.path.abspath(name)
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"there is no directory {directory}: make it first"
    if os.path.isdir(path):
        return f"{path} is a directory: name a file in it"
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        return f"this user may not read and write {path}: change its owner or mode"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"this user may make no files in {directory}, where the log lies, too: change its owner or mode"
    return None
