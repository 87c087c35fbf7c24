"""Four threads with a connection each, and a reader alongside."""

import sqlite3
import sys
import threading

extension, database = sys.argv[1:3]
uri = f"file:{database}?vfs=onewrite"

throwaway = sqlite3.connect(":memory:")
throwaway.enable_load_extension(True)
throwaway.load_extension(extension)
throwaway.close()


def connect():
    return sqlite3.connect(uri, uri=True, timeout=30)


first = connect()
(mode,) = first.execute("PRAGMA journal_mode=waldio").fetchone()
first.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, thread INTEGER, value TEXT)")
errors = []


def guarded(work):
    def run(*arguments):
        try:
            work(*arguments)
        except Exception as error:  # an exception in a thread would be lost
            errors.append(error)

    return run


@guarded
def write(thread):
    connection = connect()
    for number in range(100):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO t(thread, value) VALUES(?, ?)", (thread, "v" * number))
    connection.close()


@guarded
def read(stop):
    connection = connect()
    last = 0
    while not stop.is_set():
        (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
        assert rows >= last, f"{rows} rows after {last}"
        last = rows
    connection.close()


stop = threading.Event()
reader = threading.Thread(target=read, args=(stop,))
writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
for thread in [reader, *writers]:
    thread.start()
for thread in writers:
    thread.join()
stop.set()
reader.join()

assert not errors, errors
(rows,) = first.execute("SELECT count(*) FROM t").fetchone()
(check,) = first.execute("PRAGMA integrity_check").fetchone()
first.close()
print(mode, rows, check)
