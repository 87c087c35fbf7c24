"""Three nodes whose Raft log is a SQLite database in mode onewrite, killed while clients apply."""

import collections
import contextlib
import json
import os
import signal
import socket
import sqlite3
import threading
import time
import unittest
import urllib.request

import onewrite
from support import Place, Program, eventually

PROGRAM = os.environ["ONEWRITE_TEST_RAFT"]
CLIENTS, APPLIES = 4, 40
REQUEST_SECONDS = 30
# Shorter than the time after which a follower wants to lead.
HELD_SECONDS = 0.7


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

    def __init__(self, test, name, count=CLIENTS):
        self.test, self.name, self.stopped, self.acknowledged = test, name, threading.Event(), []
        self.at_next = None
        self.threads = [threading.Thread(target=self.apply, args=(n,)) for n in range(count)]
        for thread in self.threads:
            thread.start()
        test.addCleanup(self.stop)

    def apply(self, client):
        at = row = 0
        while not self.stopped.is_set():
            text = f"{self.name} {client} {row}"
            try:
                self.test.nodes[at].get("apply", text.encode())
            except OSError:
                # It does not lead. The row may be there nevertheless, so the next attempt has another one.
                at = (at + 1) % len(self.test.nodes)
                self.stopped.wait(0.02)
            else:
                self.acknowledged.append(text)
                if self.at_next:
                    self.at_next()
            row += 1

    def more(self):
        """Waits until more applies were acknowledged."""
        wanted = len(self.acknowledged) + APPLIES
        eventually(f"{wanted} applies", lambda: len(self.acknowledged) >= wanted)

    def when_next_is_acknowledged(self, action):
        """Runs the action in the thread that gets the next acknowledgement, and waits for its end."""
        ended = threading.Event()

        def once():
            self.at_next = None
            action()
            ended.set()

        self.at_next = once
        eventually("an acknowledged apply", ended.is_set)

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
        self.assertEqual(rows, self.log_of(node))

    def log_of(self, node):
        """The rows in the log of a killed node. Its database must be whole."""
        with contextlib.closing(onewrite.connect(node.place / "raft.db")) as connection:
            self.assertEqual([("ok",)], connection.execute("PRAGMA integrity_check").fetchall())
            found = connection.execute("SELECT data FROM log WHERE type = 0 ORDER BY number").fetchall()
        return [data.decode() for data, in found]

    def test_nodes_are_killed_while_clients_apply(self):
        clients = Clients(self, "free")
        clients.more()
        follower = self.random.choice([node for node in self.nodes if not node.leads()])
        self.kill_and_restart(follower, clients)
        self.kill_and_restart(self.leader(self.nodes), clients)
        clients.stop()
        acknowledged = clients.acknowledged + self.assert_a_majority_stores_first()
        clients = Clients(self, "last")
        clients.more()
        self.kill_all_at_an_acknowledgement(clients)
        acknowledged += clients.acknowledged
        rows = self.assert_converges(acknowledged)

        for node in self.random.sample(self.nodes, len(self.nodes)):
            node.program.kill()
        for node in self.nodes:
            self.assert_log_has(node, rows)
        for node in self.nodes:
            node.start()
        self.assertEqual(rows, self.assert_converges(acknowledged))

    def assert_a_majority_stores_first(self):
        """While two nodes cannot commit, nothing is acknowledged. Returns what is afterwards."""
        acknowledged = []

        def held():
            self.leader(self.nodes)
            terms = self.terms()
            acknowledged.extend(self.held(f"held {len(acknowledged)}"))
            # Without a leader nobody would have answered.
            return len(terms) == 1 and terms == self.terms()

        eventually("a leader that keeps its office", held)
        return acknowledged

    def terms(self):
        return {node.status()["term"] for node in self.nodes}

    def held(self, name):
        with contextlib.ExitStack() as locks:
            for node in self.random.sample(self.nodes, 2):
                database = onewrite.connect(node.place / "raft.db", timeout=REQUEST_SECONDS)
                locks.enter_context(contextlib.closing(database)).execute("BEGIN IMMEDIATE")
            # With more clients the leader could be waiting to store the next apply, and answer none.
            client = Clients(self, name, 1)
            time.sleep(HELD_SECONDS)
            self.assertEqual([], client.acknowledged, "acknowledged before it was stored")
        client.more()
        client.stop()
        return client.acknowledged

    def kill_all_at_an_acknowledgement(self, clients):
        """Raft acknowledges what a majority of the nodes has stored. So two of the killed nodes have it."""

        def stop():
            for node in self.nodes:
                os.kill(node.program.process.pid, signal.SIGSTOP)

        clients.when_next_is_acknowledged(stop)
        for node in self.nodes:
            node.program.kill()
        clients.stop()
        logs = [self.log_of(node) for node in self.nodes]
        stored = collections.Counter(row for log in logs for row in set(log))
        self.assertFalse([row for row in clients.acknowledged if stored[row] < 2], "on one node at most")
        for node in self.nodes:
            node.start()

    def kill_and_restart(self, node, clients):
        node.program.kill()
        clients.more()
        node.start()
        clients.more()


if __name__ == "__main__":
    unittest.main()
