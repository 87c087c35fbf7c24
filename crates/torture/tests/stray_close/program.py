"""A process with connections of Python's sqlite3.

It reads commands, one a line, executes them on the newest connection, and answers each with a line.
"""

import os
import select
import sqlite3
import sys

extension = sys.argv[1]
connections = []


def load():
    throwaway = sqlite3.connect(":memory:")
    throwaway.enable_load_extension(True)
    throwaway.load_extension(extension)
    throwaway.close()
    return "loaded"


def connect(vfs, path):
    uri = f"file:{path}?vfs={vfs}"
    connections.append(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None))
    return "open"


def query(statement):
    rows = connections[-1].execute(statement).fetchall()
    return " ".join("|".join(str(value) for value in row) for row in rows)


def close():
    connections.pop().close()
    return "closed"


def stray(path):
    open(path, "rb").close()
    return "strayed"


def fork(what):
    """A child that stays alive. If `what` is "close", it first closes its parent's connection."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = close() if what == "close" else "idle"
        except sqlite3.Error as error:
            answer = f"ERROR {error}"
        os.write(writer, answer.encode())
        os.close(writer)
        # Waits until the program that started the parent closes standard input. Input before that
        # belongs to the parent.
        ended = select.poll()
        ended.register(0, 0)
        ended.poll()
        os._exit(0)
    os.close(writer)
    answer = b"".join(iter(lambda: os.read(reader, 4096), b""))
    os.close(reader)
    return f"{child} {answer.decode()}"


for line in sys.stdin:
    command, _, argument = line.rstrip("\n").partition(" ")
    try:
        if command == "load":
            answer = load()
        elif command == "open":
            answer = connect(*argument.split(" ", 1))
        elif command == "sql":
            answer = query(argument)
        elif command == "close":
            answer = close()
        elif command == "stray":
            answer = stray(argument)
        elif command == "fork":
            answer = fork(argument)
    except sqlite3.Error as error:
        answer = f"ERROR {error}"
    print("<answer>" + answer.replace("\n", " "), flush=True)
