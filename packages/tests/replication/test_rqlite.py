"""Three nodes of rqlite below `onewrite run`, killed one by one and all at once."""

import contextlib
import json
import os
import socket
import sqlite3
import unittest
import urllib.request

from support import Place, Program, eventually

COMMAND, PROGRAM = os.environ["ONEWRITE_COMMAND"], os.environ["ONEWRITE_TEST_RQLITE"]
INSERT = "INSERT INTO row(body) VALUES('%s')"
ROWS = "SELECT * FROM row ORDER BY id"
# The rest of the test is bounded by it: a request that no majority answers fails after this.
REQUEST_SECONDS = 30


class Node:
    """A node, which keeps its addresses and its directory over restarts."""

    def __init__(self, test, name, host, join=None):
        self.test, self.place = test, test.place / name
        self.place.mkdir()
        self.http, self.raft = (f"{host}:{free_port(host)}" for _ in range(2))
        self.join = ["-join", f"http://{join.http}"] if join else []
        self.database = self.place / "db.sqlite"
        self.start()

    def start(self):
        options = ["-http-addr", self.http, "-raft-addr", self.raft, "-on-disk", "-dsn", "_synchronous=FULL"]
        command = [COMMAND, "run", "--", PROGRAM, *options, *self.join, self.place]
        # A killed `onewrite run` leaves a file there.
        self.program = Program(self.test, self.place.name, *command, env={**os.environ, "TMPDIR": str(self.place)})

    def get(self, path, data=None):
        request = urllib.request.Request(f"http://{self.http}/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
            return answer.read()

    def ask(self, path, body=None):
        return json.loads(self.get(path, None if body is None else json.dumps(body).encode()))

    def raft_status(self):
        self.program.fails_if_it_ended()
        return self.ask("status")["store"]

    def leads(self):
        return self.raft_status()["raft"]["state"] == "Leader"

    def rows(self):
        """The rows of this node alone."""
        (result,) = self.ask(f"db/query?level=none&q={ROWS.replace(' ', '+')}")["results"]
        if "error" in result:
            return result["error"]
        return [tuple(row) for row in result.get("values", [])]



def free_port(host):
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Cluster(Place):
    def setUp(self):
        super().setUp()
        # A loopback address of its own, where no connection of another test takes a port.
        host = ".".join(str(self.random.randrange(1, 255)) for _ in range(3))
        first = Node(self, "first", f"127.{host}")
        eventually("the first node leads", lambda: first.leads())
        self.nodes = [first]
        for name in ("second", "third"):
            self.nodes.append(Node(self, name, f"127.{host}", first))
            eventually(f"{name} joins", lambda: len(self.nodes[-1].raft_status()["peers"]) == len(self.nodes))
        self.acknowledged = []
        self.execute(first, "CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT)")

    def leader(self, nodes):
        """Waits for the one of these nodes that leads."""
        return eventually("a leader", lambda: next((node for node in nodes if node.leads()), None))

    def execute(self, node, statement):
        (result,) = node.ask("db/execute", [statement])["results"]
        self.assertNotIn("error", result)
        return result

    def insert(self, nodes, count):
        """Adds rows, each by a request to the leader. Returns the leader that answered last."""
        leader = self.leader(nodes)
        for _ in range(count):
            body = "%032x" % self.random.getrandbits(128)

            def acknowledged():
                nonlocal leader
                try:
                    return self.execute(leader, INSERT % body)
                except OSError:
                    # It lost its office. The row may be there without an answer, and once more.
                    leader = self.leader(nodes)

            eventually("an acknowledged row", acknowledged)
            self.acknowledged.append(body)
        return leader

    def assert_converges(self):
        def same():
            found = [node.rows() for node in self.nodes]
            return found[0] if found.count(found[0]) == len(found) else None

        end = self.leader(self.nodes)

        def all_has_arrived():
            applied = {node.raft_status()["raft"]["applied_index"] for node in self.nodes}
            return len(applied) == 1 and applied == {end.raft_status()["raft"]["last_log_index"]}

        eventually("each node has the whole log", all_has_arrived)
        rows = eventually("the same rows on each node", same)
        self.assert_has_all(rows)

    def assert_has_all(self, rows):
        self.assertFalse(set(self.acknowledged) - {body for _, body in rows}, "acknowledged rows are missing")

    def test_nodes_are_killed(self):
        self.insert(self.nodes, 20)
        self.assert_is_in_the_mode()
        follower = next(node for node in self.nodes if not node.leads())
        self.assert_converges_without(follower)
        leader = self.leader(self.nodes)
        self.assert_converges_without(leader)
        # A node that starts deletes its database and makes it again from the log of Raft. So the
        # engine set the killed one's log aside.
        self.assertTrue(list(leader.place.glob("db.sqlite-onewrite-orphan-*")))

        leader = self.insert(self.nodes, 20)
        # Raft's snapshots are made in the same way.
        backup = self.place / "backup.db"
        backup.write_bytes(leader.get("db/backup"))
        self.assert_has_all(self.rows(backup, "stock"))
        for node in self.random.sample(self.nodes, len(self.nodes)):
            node.program.kill()
        self.assert_has_all(self.rows(leader.database))
        for node in self.nodes:
            node.start()
        self.assert_converges()

    def assert_converges_without(self, node):
        node.program.kill()
        self.insert([other for other in self.nodes if other is not node], 20)
        node.start()
        self.assert_converges()

    def assert_is_in_the_mode(self):
        for node in self.nodes:
            self.assertTrue((node.place / "db.sqlite-onewrite").exists())
            with contextlib.closing(sqlite3.connect(node.database)) as stock:
                with self.assertRaisesRegex(sqlite3.DatabaseError, "file is not a database"):
                    stock.execute(ROWS)


if __name__ == "__main__":
    unittest.main()
