"""Three nodes whose Raft log is a SQLite database in mode onewrite, killed while clients apply."""

import contextlib
import json
import os
import socket
import sqlite3
import threading
import unittest
import urllib.request

import onewrite
from support import Place, Program, eventually

PROGRAM = os.environ["ONEWRITE_TEST_RAFT"]
CLIENTS, APPLIES = 4, 40
REQUEST_SECONDS = 30


class Node:
    """A node, which keeps its addresses and its directory over restarts."""

    def __init__(self, test, number, http, members):
        self.test, self.http = test, http
        self.place = test.place / str(number)
        self.place.mkdir()
        self.members = members[number:] + members[:number]

    def start(self):
        command = [PROGRAM, "node", "onewrite", self.place, self.http, *self.members]
        self.program = Program(self.test, self.place.name, *command)

    def get(self, path, data=None):
        with urllib.request.urlopen(f"http://{self.http}/{path}", data, REQUEST_SECONDS) as answer:
            return answer.read()

    def status(self):
        self.program.fails_if_it_ended()
        return json.loads(self.get("status"))

    def leads(self):
        return self.status()["state"] == "Leader"

    def rows(self):
        return json.loads(self.get("rows"))


def free_ports(host, count):
    with contextlib.ExitStack() as probes:
        found = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in found:
            probe.bind((host, 0))
        return [f"{host}:{probe.getsockname()[1]}" for probe in found]


class Clients:
    """Threads that apply rows, each a new one, to the node that takes them, until they are stopped."""

    def __init__(self, test):
        self.test, self.stopped, self.acknowledged = test, threading.Event(), []
        self.threads = [threading.Thread(target=self.apply, args=(n,)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()
        test.addCleanup(self.stop)

    def apply(self, client):
        at = row = 0
        while not self.stopped.is_set():
            text = f"{client} {row}"
            try:
                self.test.nodes[at].get("apply", text.encode())
            except OSError:
                # It does not lead. The row may be there nevertheless, so the next attempt has another one.
                at = (at + 1) % len(self.test.nodes)
                self.stopped.wait(0.02)
            else:
                self.acknowledged.append(text)
            row += 1

    def more(self):
        """Waits until more applies were acknowledged."""
        wanted = len(self.acknowledged) + APPLIES
        eventually(f"{wanted} applies", lambda: len(self.acknowledged) >= wanted)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


class Cluster(Place):
    def setUp(self):
        super().setUp()
        # A loopback address of its own, where no connection of another test takes a port.
        host = "127." + ".".join(str(self.random.randrange(1, 255)) for _ in range(3))
        ports = free_ports(host, 6)
        self.nodes = [Node(self, number, ports[3 + number], ports[:3]) for number in range(3)]
        for node in self.nodes:
            node.start()
        self.leader(self.nodes)

    def leader(self, nodes):
        return eventually("a leader", lambda: next((node for node in nodes if node.leads()), None))

    def assert_converges(self, acknowledged):
        """Each node has the whole log applied, the same rows in the same order, and all acknowledged ones."""

        def same():
            states = [node.status() for node in self.nodes]
            ends = {(state["applied"], state["last"]) for state in states}
            if len(ends) > 1 or states[0]["applied"] != states[0]["last"]:
                return None
            found = [node.rows() for node in self.nodes]
            return found[0] if found.count(found[0]) == len(found) else None

        self.leader(self.nodes)
        rows = eventually("the same rows on each node", same)
        self.assertFalse(set(acknowledged) - set(rows), "acknowledged applies are missing")
        self.assertEqual(len(rows), len(set(rows)))
        return rows

    def assert_log_has(self, node, rows):
        """The database of a killed node has these rows, and stock SQLite does not open it."""
        database = node.place / "raft.db"
        with contextlib.closing(sqlite3.connect(database)) as stock:
            with self.assertRaisesRegex(sqlite3.DatabaseError, "file is not a database"):
                stock.execute("SELECT count(*) FROM log")
        with contextlib.closing(onewrite.connect(database)) as connection:
            self.assertEqual([("ok",)], connection.execute("PRAGMA integrity_check").fetchall())
            found = connection.execute("SELECT data FROM log WHERE type = 0 ORDER BY number").fetchall()
        self.assertEqual(rows, [data.decode() for data, in found])

    def test_nodes_are_killed_while_clients_apply(self):
        clients = Clients(self)
        clients.more()
        follower = self.random.choice([node for node in self.nodes if not node.leads()])
        self.kill_and_restart(follower, clients)
        self.kill_and_restart(self.leader(self.nodes), clients)
        clients.stop()
        rows = self.assert_converges(clients.acknowledged)

        for node in self.random.sample(self.nodes, len(self.nodes)):
            node.program.kill()
        for node in self.nodes:
            self.assert_log_has(node, rows)
        for node in self.nodes:
            node.start()
        self.assertEqual(rows, self.assert_converges(clients.acknowledged))

    def kill_and_restart(self, node, clients):
        node.program.kill()
        clients.more()
        node.start()
        clients.more()


if __name__ == "__main__":
    unittest.main()
