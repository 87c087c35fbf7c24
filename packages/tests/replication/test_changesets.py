"""Two databases in mode `onewrite` that exchange the changesets of SQLite's sessions. It needs no -wal file."""

import contextlib
import sys
import unittest

import apsw
from peer import Peer
from support import HERE, Place, Writing


class Exchange(Place):
    def setUp(self):
        super().setUp()
        self.paths = [self.place / "left.db", self.place / "right.db"]

    def start(self, commits=0):
        """A writer for each database."""
        return [self.writer(own, other, commits) for own, other in (self.paths, self.paths[::-1])]

    def writer(self, own, other, commits):
        return Writing(self, own.stem, [HERE / "peer.py", own, other], commits)

    def test_both_changed_an_item(self):
        with contextlib.ExitStack() as stack:
            for path, bodies in zip(self.paths, ((b"first", b"third"), (b"second",))):
                peer = stack.enter_context(contextlib.closing(Peer(path)))
                for body in bodies:
                    peer.change(1, body)
        (item,) = self.assert_merged([1, 2], [1])
        self.assertEqual(b"third", item[2])

    def test_writers_are_killed(self):
        for _ in range(4):
            writers = self.start()
            for writer in writers:
                writer.wait_for_commits(self.random.randrange(5, 40))
            first, second = self.random.sample(writers, 2)
            first.kill()
            second.wait_for_commits(len(second.acknowledged()) - second.before + 5)
            second.kill()
        writers = self.start(commits=10)
        for writer in writers:
            writer.wait_for_its_end()
        self.assert_merged(*(writer.acknowledged() for writer in writers))

    def assert_merged(self, *acknowledged):
        """Lets each peer receive the rest. Returns the items that both have then."""
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(contextlib.closing(Peer(path))) for path in self.paths]
            left, right = peers
            left.receive(right)
            right.receive(left)
            kept = [peer.rows("SELECT number, bytes FROM changeset ORDER BY number") for peer in peers]
            items = [peer.rows("SELECT id, stamp, body FROM item ORDER BY id") for peer in peers]
            for peer in peers:
                self.assertEqual("ok", peer.value("PRAGMA integrity_check"))
        for numbers, changesets in zip(acknowledged, kept):
            self.assertFalse(set(numbers) - {number for number, _ in changesets}, "acknowledged commits are missing")
        expected = latest(bytes for changesets in kept for _, bytes in changesets)
        self.assert_same(expected, items[0])
        self.assert_same(expected, items[1])
        return expected


def latest(changesets):
    """The items that changesets come to, in any order."""
    found = {}
    for bytes in changesets:
        for change in apsw.Changeset.iter(bytes):
            item = change.new[0] if change.op == "INSERT" else change.old[0]
            found[item] = max(found.get(item, (0, b"")), tuple(change.new[1:]))
    return [(item, *found[item]) for item in sorted(found)]


if __name__ == "__main__":
    unittest.main()
