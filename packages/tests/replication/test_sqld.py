"""libsql's server in mode direct: a primary and two replicas, killed one by one and all at once."""

import contextlib
import sqlite3
import unittest

import sqld
from support import Place, eventually

ROWS = "SELECT body FROM row ORDER BY id"


class Cluster(Place):
    def setUp(self):
        super().setUp()
        self.nodes = sqld.cluster(self, "direct")
        self.acknowledged = []

    def insert(self, nodes, count):
        """Adds rows, through each node in turn. A replica passes a write on to its primary."""
        for number in range(count):
            node = nodes[number % len(nodes)]
            body = "%032x" % self.random.getrandbits(128)
            # It may be there without an answer, and then again.
            eventually("an acknowledged row", lambda: self.inserted(node, body))
            self.acknowledged.append(body)

    def inserted(self, node, body):
        node.execute(f"INSERT OR IGNORE INTO row(body) VALUES('{body}')")
        return True

    def assert_converges(self):
        """Each node answers with the acknowledged rows, once each, and has them in its own database. An answer
        alone is not enough: a replica that takes the database again asks its primary."""
        wanted = sorted(self.acknowledged)

        def same():
            return all(sorted(body for body, in node.execute(ROWS)) == wanted == self.stored(node)
                       for node in self.nodes)

        eventually("the same rows on each node", same)

    def stored(self, node):
        """The rows that stock SQLite finds in a running node's database, or None."""
        try:
            with contextlib.closing(sqlite3.connect(f"file:{node.database}?mode=ro", uri=True)) as stock:
                return sorted(body for body, in stock.execute(ROWS))
        except sqlite3.Error:
            # It is just being made.
            return None

    def assert_is_in_the_mode(self, nodes):
        for node in nodes:
            self.assertTrue(node.has_entered_the_mode(), node.program.log())
            # Made ready in advance, so that no commit allocates.
            self.assertGreaterEqual((node.database.parent / "data-wal").stat().st_size, 128 << 10)

    def assert_stock_reads(self, node):
        with contextlib.closing(sqlite3.connect(node.database)) as stock:
            self.assertEqual([("ok",)], stock.execute("PRAGMA integrity_check").fetchall())
            self.assertEqual(sorted(self.acknowledged), sorted(body for body, in stock.execute(ROWS)))

    def test_nodes_are_killed(self):
        primary, *replicas = self.nodes
        self.insert(self.nodes, 30)
        self.assert_is_in_the_mode(self.nodes)
        self.assert_converges()

        replica = self.random.choice(replicas)
        replica.program.kill()
        self.insert([node for node in self.nodes if node is not replica], 20)
        replica.start()
        self.assert_converges()
        self.assert_is_in_the_mode([replica])

        # It makes a new log for the replicas, and they take the whole database again.
        primary.program.kill()
        primary.start()
        self.insert(self.nodes, 20)
        self.assert_converges()

        for node in self.random.sample(self.nodes, len(self.nodes)):
            node.program.kill()
        for node in self.nodes:
            self.assert_stock_reads(node)
        for node in self.nodes:
            node.start()
            eventually("the rows", lambda: node.execute(ROWS))
        self.insert(self.nodes, 20)
        self.assert_converges()
        self.assert_is_in_the_mode(self.nodes)


if __name__ == "__main__":
    unittest.main()
