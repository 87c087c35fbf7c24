"""Litestream as the tests run it: one database, a replica of files."""

import json
import os
from pathlib import Path

from support import MOST_SECONDS, Program, eventually, output, run

PROGRAM = Path(os.environ["ONEWRITE_TEST_LITESTREAM"])
CONFIGURATION = "litestream.yml"
# A path of a socket may have 107 bytes. So it is relative to the test's directory.
SOCKET = "litestream.sock"
# Small intervals, so that a short test has many syncs, checkpoints and compactions.
SETTINGS = f"""\
socket: {{enabled: true, path: {SOCKET}}}
levels: [{{interval: 1s}}]
snapshot: {{interval: 24h}}
dbs:
  - path: DATABASE
    monitor-interval: 20ms
    checkpoint-interval: 1s
    min-checkpoint-page-count: 100
    replica: {{type: file, path: REPLICA, sync-interval: 20ms}}
"""


class Litestream(Program):
    """`litestream replicate`."""

    def __init__(self, test, replica="replica"):
        self.place, self.database, self.replica = test.place, test.database, test.place / replica
        settings = SETTINGS.replace("DATABASE", str(self.database)).replace("REPLICA", str(self.replica))
        (self.place / CONFIGURATION).write_text(settings)
        (self.place / SOCKET).unlink(missing_ok=True)
        super().__init__(test, "litestream", PROGRAM, "replicate", "-config", CONFIGURATION, cwd=self.place)

    def is_ready(self):
        self.fails_if_it_ended()
        return (self.place / SOCKET).exists()

    def has_a_file(self):
        self.fails_if_it_ended()
        return any(self.replica.rglob("*.ltx"))

    def sync(self):
        """Waits until the replica has what is committed, and returns its transaction's number."""
        options = ("-wait", "-json", "-timeout", MOST_SECONDS, "-socket", SOCKET)

        def done():
            self.fails_if_it_ended()
            # It fails where the database is not open yet, or somebody has its lock.
            said = output(PROGRAM, "sync", *options, self.database, cwd=self.place)
            return json.loads(said) if said else None

        return eventually("a sync", done)["replica_txid"]

    def restore(self, name="restored.db", *options):
        """Restores the newest state, or what the options say, and returns the path."""
        copy = self.place / name
        run(PROGRAM, "restore", *options, "-o", copy, f"file://{self.replica}")
        return copy


def reset(place, database):
    """Makes Litestream forget what it has seen of a database, so that it begins with a snapshot."""
    run(PROGRAM, "reset", "-config", CONFIGURATION, database, cwd=place)
