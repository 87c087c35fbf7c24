"""libsql's server: nodes of one primary and its replicas, each with the extension in its own SQLite."""

import hashlib
import json
import os
import shutil
import socket
import urllib.request

from support import MOST_SECONDS, Program, eventually

PROGRAM, EXTENSION = os.environ["ONEWRITE_TEST_SQLD"], os.environ["ONEWRITE_EXTENSION_LIBRARY"]
DATABASE = "app"
# Its first connection loads the extension, and is itself a stock one.
FIRST = "default"


def free_address(host):
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def extensions(place):
    """The directory of extensions that a server may load, with the list of their hashes."""
    place.mkdir()
    copy = place / "libonewrite.so"
    shutil.copy(EXTENSION, copy)
    digest = hashlib.sha256(copy.read_bytes()).hexdigest()
    (place / "trusted.lst").write_text(f"{digest}  {copy.name}\n")
    return place


class Node:
    """A server, which keeps its addresses and its directory over restarts. With a primary it is a replica."""

    def __init__(self, test, name, host, mode, primary=None):
        self.test, self.mode, self.primary = test, mode, primary
        self.place = test.place / name
        self.http, self.grpc, self.admin = (free_address(host) for _ in range(3))
        self.database = self.place / "dbs" / DATABASE / "data"
        self.extensions = extensions(test.place / f"{name} extensions") if mode != "wal" else None

    def start(self):
        command = [PROGRAM, "--db-path", self.place, "--http-listen-addr", self.http, "--no-welcome",
                   "--enable-namespaces"]
        if self.primary:
            command += ["--primary-grpc-url", f"http://{self.primary.grpc}"]
        else:
            command += ["--grpc-listen-addr", self.grpc, "--admin-listen-addr", self.admin]
        environment = dict(os.environ)
        if self.mode != "wal":
            command += ["--extensions-path", self.extensions]
            environment |= {"ONEWRITE_MAKE_DEFAULT": "1", "ONEWRITE_UPGRADE_WAL": self.mode, "ONEWRITE_LOG": "stderr"}
        self.program = Program(self.test, self.place.name, *command, env=environment)
        self.log_before = len(self.program.log())
        # The extension, before anything opens the database.
        eventually(f"{self.place.name} answers", lambda: self.execute("SELECT 1", FIRST))

    def post(self, address, path, body, host=None):
        headers = {"Content-Type": "application/json", **({"Host": host} if host else {})}
        request = urllib.request.Request(f"http://{address}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=MOST_SECONDS) as answer:
            return answer.read()

    def create(self):
        """Makes the database, at synchronous=FULL. The server's default is NORMAL."""
        self.post(self.admin, f"v1/namespaces/{DATABASE}/create", {})
        settings = {"block_reads": False, "block_writes": False, "durability_mode": "strong"}
        self.post(self.admin, f"v1/namespaces/{DATABASE}/config", settings)

    def execute(self, statement, namespace=DATABASE):
        """The rows of a statement. An error of the server is an OSError: it may have been done all the same."""
        self.program.fails_if_it_ended()
        statements = [{"type": "execute", "stmt": {"sql": statement}}, {"type": "close"}]
        # The server takes the first part of the host for the database's name.
        answer = self.post(self.http, "v2/pipeline", {"requests": statements}, f"{namespace}.test")
        result = json.loads(answer)["results"][0]
        if result["type"] != "ok":
            raise OSError(result["error"]["message"])
        rows = result["response"]["result"]["rows"]
        return [tuple(value.get("value") for value in row) for row in rows]

    def has_entered_the_mode(self):
        """Whether it has since its last start."""
        entered = f"event=mode_entered mode={self.mode} "
        lines = self.program.log()[self.log_before:].splitlines()
        return any(entered in line and line.endswith(f"database={self.database}") for line in lines)


def cluster(test, mode):
    """A primary and two replicas, each of which has the table."""
    # A loopback address of its own, where no connection of another test takes a port.
    host = "127." + ".".join(str(test.random.randrange(1, 255)) for _ in range(3))
    primary = Node(test, "primary", host, mode)
    nodes = [primary] + [Node(test, name, host, mode, primary) for name in ("first", "second")]
    primary.start()
    primary.create()
    primary.execute("CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT UNIQUE)")
    for node in nodes[1:]:
        node.start()
        eventually("the table", lambda: node.execute("SELECT name FROM sqlite_schema"))
    return nodes
