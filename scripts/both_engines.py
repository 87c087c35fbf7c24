"""The library with both B-tree engines, for the scripts that run Python on it."""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "libsqlite3.so.0"


def restart(parser, directory, variable):
    """Starts the script again, on the library in a directory that scripts/libsqlite3 made, else on one that it makes.

    `variable` is set in its environment then. Does not return.
    """
    if not directory:
        built = subprocess.run([ROOT / "scripts/libsqlite3"], stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode:
            sys.exit(built.returncode)
        directory = built.stdout.strip().splitlines()[-1]
    shared = Path(directory).resolve() / "lib" / LIBRARY
    if not shared.exists():
        parser.error(f"no {shared}: --library is a directory that scripts/libsqlite3 made")
    # Python uses this library only if its sqlite3 module is not linked with a copy of its own.
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    os.execve(python, [python, *sys.argv], {**os.environ, "LD_PRELOAD": str(shared), variable: "1"})


def need_mode(connection, mode):
    """Sets the journal mode; ends the script if another library is loaded, which does not have it."""
    said = connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
    if said != mode:
        sys.exit(f"journal_mode={mode} is {said}: is {LIBRARY} of scripts/libsqlite3 the one that is loaded?")
