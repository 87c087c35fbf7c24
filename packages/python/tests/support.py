"""Helpers of the tests. They test the package `onewrite` that Python finds, with its extension or the
one that ONEWRITE_EXTENSION_LIBRARY names."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import onewrite

OWN_VARIABLES = (
    "ONEWRITE_UPGRADE_WAL",
    "ONEWRITE_JOURNAL_MODE",
    "ONEWRITE_MAKE_DEFAULT",
    "ONEWRITE_SYNCHRONOUS",
    "ONEWRITE_LINGER",
)


def environment(**variables):
    """This environment without what `load` or the user has set."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return {**kept, **variables}


def start(code, *arguments, **variables):
    """A process that runs Python code."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**variables),
        universal_newlines=True,
    )


def printed(code, *arguments, **variables):
    """The output of a process that must succeed."""
    process = start(code, *arguments, **variables)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, f"{output}\n{errors}"
    return output.strip()


class Place(unittest.TestCase):
    """A directory with a database in it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.path = os.path.join(self.directory, "app.db")

    def connect(self, *arguments, **keywords):
        connection = onewrite.connect(*(arguments or (self.path,)), **keywords)
        self.addCleanup(connection.close)
        return connection

    def stock(self, path=None):
        connection = sqlite3.connect(path or self.path, isolation_level=None, timeout=0)
        self.addCleanup(connection.close)
        return connection

    def fails(self, *words):
        """Expects an OneWriteError that has these words."""
        pattern = ".*".join(words)
        return self.assertRaisesRegex(onewrite.OneWriteError, f"(?s){pattern}")
