"""Helpers of the tests: programs that are killed, a writer, and waits for a state."""

import contextlib
import ctypes
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import onewrite

HERE = Path(__file__).resolve().parent
# On a busy machine a process may not run for a minute.
MOST_SECONDS = 120


def eventually(what, probe, seconds=MOST_SECONDS):
    """Asks until the answer is true, and returns it. An OSError counts as no answer yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            answer = probe()
        except OSError as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        if time.monotonic() >= end:
            raise AssertionError(f"{what}: not within {seconds} s, at last {last!r}")
        time.sleep(0.02)


def ended(*command, **options):
    """Runs a program to its end."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=MOST_SECONDS, **options)


def run(*command, **options):
    """The output of a program that must succeed."""
    done = ended(*command, **options)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def output(*command, **options):
    """The output of a program, or None if it failed."""
    done = ended(*command, **options)
    return done.stdout if done.returncode == 0 else None


def children(process):
    """The ids of the children that the threads of a process started."""
    found = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, file.read_text().split())
    return found


def ends_with_its_parent():
    """Has the kernel send SIGTERM to this process when its parent ends. `onewrite run` passes it on."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Program:
    """A program that runs in the background. What it prints goes to a file."""

    def __init__(self, test, name, *command, **options):
        self.output = test.place / f"{name}.log"
        with open(self.output, "ab") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=ends_with_its_parent, **options)
        test.addCleanup(self.kill)

    def kill(self):
        """Kills the program and its children by SIGKILL."""
        if self.process.poll() is None:
            for child in children(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self.process.kill()
        return self.process.wait(MOST_SECONDS)

    def stop(self):
        """Ends the program by SIGTERM, and returns its exit code."""
        self.process.terminate()
        return self.process.wait(MOST_SECONDS)

    def log(self):
        return self.output.read_text(errors="replace")

    def fails_if_it_ended(self):
        code = self.process.poll()
        assert code is None, f"ended with {code}:\n{self.log()}"


class Writing(Program):
    """A Python program that commits one transaction after another, and notes the number of each commit that
    returned. Its last arguments are the file of these notes, and after how many transactions it ends."""

    def __init__(self, test, name, command, commits=0):
        self.notes = test.place / f"{name} acknowledged"
        self.before = len(self.acknowledged())
        super().__init__(test, name, sys.executable, *command, self.notes, commits)

    def acknowledged(self):
        """The numbers of all commits that returned, those of earlier writers included."""
        if not self.notes.exists():
            return []
        # A kill may cut the last line.
        *lines, _ = self.notes.read_text().split("\n")
        return list(map(int, lines))

    def wait_for_commits(self, count):
        """Waits until so many commits of this writer have returned."""

        def enough():
            self.fails_if_it_ended()
            return len(self.acknowledged()) - self.before >= count

        eventually(f"{count} commits", enough)

    def wait_for_its_end(self):
        code = self.process.wait(MOST_SECONDS)
        assert code == 0, f"the writer: exit code {code}\n{self.log()}"


class Writer(Writing):
    """`writer.py`. The numbers are the ids of rows."""

    def __init__(self, test, database, mode, commits=0):
        super().__init__(test, "writer", [HERE / "writer.py", database, mode], commits)


class Place(unittest.TestCase):
    """A directory with a database in it."""

    tells_its_seed = True

    def setUp(self):
        self.place = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)
        self.database = self.place / "app.db"
        seed = int(os.environ.get("ONEWRITE_TORTURE_SEED") or random.randrange(1 << 32))
        if self.tells_its_seed:
            print(f"{self.id()}: ONEWRITE_TORTURE_SEED={seed}", flush=True)
        self.random = random.Random(seed)

    def rows(self, path, mode=None):
        """All rows, read with onewrite, or by stock SQLite. The database must be whole."""
        if mode == "stock":
            opened = sqlite3.connect(path, timeout=MOST_SECONDS)
        else:
            opened = onewrite.connect(path, mode=mode, timeout=MOST_SECONDS)
        with contextlib.closing(opened) as connection:
            self.assertEqual([("ok",)], connection.execute("PRAGMA integrity_check").fetchall())
            return connection.execute("SELECT * FROM row ORDER BY id").fetchall()

    def assert_has(self, acknowledged, rows):
        missing = set(acknowledged) - {row[0] for row in rows}
        self.assertFalse(missing, "acknowledged commits are missing")

    def assert_same(self, expected, found):
        """Compares rows, and names the first that differs."""
        if expected == found:
            return
        differing = sorted(set(expected) ^ set(found))
        self.fail(f"{len(expected)} rows, and {len(found)} there; {len(differing)} differ, first {differing[:2]}")
