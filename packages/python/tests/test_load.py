"""load and loadable_path, each in a process of its own; and the package itself."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import unittest

import onewrite
from support import Place, environment, printed

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(onewrite.__file__).parent

CONNECT = """if True:
    import sqlite3
    db = sqlite3.connect("file:" + sys.argv[1] + "?vfs=onewrite", uri=True)
    print(db.execute("PRAGMA journal_mode=onewrite").fetchone()[0])
"""


class Load(Place):
    def test_it_makes_the_vfs_available_once_and_again(self):
        code = "import onewrite, os, sys; print(onewrite.load(), onewrite.load(), os.environ['ONEWRITE_UPGRADE_WAL'])\n"
        said = printed(code + CONNECT, self.path)
        self.assertEqual("True True onewrite\nonewrite", said)

    def test_loading_again_keeps_the_default(self):
        code = """if True:
            import os, sqlite3, sys
            from onewrite import _library
            os.environ["ONEWRITE_MAKE_DEFAULT"] = "1"
            _library._load_by_ctypes()
            del os.environ["ONEWRITE_MAKE_DEFAULT"]
            _library._load_by_ctypes()
            db = sqlite3.connect(sys.argv[1])
            print(*db.execute("PRAGMA journal_mode=onewrite").fetchone())
        """
        self.assertEqual("onewrite", printed(code, self.path))

    def test_it_leaves_what_the_environment_says_of_wal(self):
        code = """if True:
            import onewrite, sys
            db = onewrite.connect(sys.argv[1])
            print(*db.execute("PRAGMA journal_mode=WAL").fetchone())
            try: onewrite.check(db)
            except onewrite.OneWriteError as error: print(error)
        """
        said = printed(code, self.path, ONEWRITE_UPGRADE_WAL="0")
        self.assertEqual(
            "wal\nthe database is in wal mode, not in one of onewrite: run PRAGMA journal_mode=onewrite on it", said
        )

    def test_without_enable_load_extension(self):
        code = "import onewrite, sys; from onewrite import _library; _library._load_by_ctypes()\n"
        self.assertEqual("onewrite", printed(code + CONNECT, self.path))

    def test_a_damaged_library_and_one_for_another_machine(self):
        """The loader would end the process at one that is cut short."""
        library = pathlib.Path(self.directory, "libonewrite.so")
        whole = pathlib.Path(onewrite.loadable_path()).read_bytes()
        name, number = ("x86_64", 62) if whole[18] == 183 else ("aarch64", 183)
        # The class of this file stays (ELF's fifth byte).
        bits = 64 if whole[4] == 2 else 32
        way_out = "install onewrite again, or name another library in ONEWRITE_EXTENSION_LIBRARY"
        for reason, contents in {
            "it is no shared library": b"no library",
            "it is cut short": whole[:-1],
            f"it is for {name}, {bits} bits, and this Python is for .+": whole[:18] + bytes([number]) + whole[19:],
        }.items():
            library.write_bytes(contents)
            for way in ("_load_by_ctypes()", "load()"):
                code = f"""if True:
                    from onewrite import _library
                    try: _library.{way}
                    except _library.OneWriteError as error: print(error)
                """
                said = printed(code, ONEWRITE_EXTENSION_LIBRARY=str(library))
                self.assertRegex(said, f"^cannot load {re.escape(str(library))}: {reason}: {way_out}$")

    def test_through_a_connection(self):
        code = """if True:
            import onewrite, sqlite3, sys
            CONNECT = sys.argv[1]
            loader = sqlite3.connect(":memory:")
            if hasattr(loader, "enable_load_extension"):
                print(onewrite.load(loader))
            else:
                print(onewrite.load())
            del sys.argv[1]
            exec(CONNECT)
        """
        self.assertEqual("True\nonewrite", printed(code, CONNECT, self.path))

    def test_from_threads(self):
        code = """if True:
            import onewrite, sys
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(8) as pool:
                print(set(pool.map(lambda _: onewrite.load(), range(32))))
        """
        self.assertEqual("{True}", printed(code))

    def test_a_library_that_is_not_there_is_named(self):
        code = """if True:
            import onewrite
            for use in (onewrite.loadable_path, onewrite.load, lambda: onewrite.connect("x")):
                try: use()
                except onewrite.OneWriteError as error: print(error)
        """
        said = printed(code, ONEWRITE_EXTENSION_LIBRARY="/nowhere/libonewrite.so").splitlines()
        self.assertEqual(3, len(said))
        for line in said:
            self.assertEqual("ONEWRITE_EXTENSION_LIBRARY: there is no file /nowhere/libonewrite.so", line)

    def test_other_systems_get_a_warning_and_stock_wal(self):
        code = """if True:
            import sys, warnings
            sys.platform = sys.argv[2]
            import onewrite
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                print(onewrite.load())
                db = onewrite.connect(sys.argv[1], mode="waldio", timeout=1)
            print(*(warning.message for warning in told), sep="\\n")
            print(*db.execute("PRAGMA journal_mode").fetchone(), *db.execute("PRAGMA synchronous").fetchone())
            try: onewrite.check(db)
            except onewrite.OneWriteError as error: print(error)
        """
        for system in ("darwin", "win32"):
            said = printed(code, self.path, system).splitlines()
            warning = "onewrite runs on Linux only: databases are in stock WAL here"
            refusal = "the connection does not use onewrite: onewrite runs on Linux only"
            self.assertEqual(["False", warning, warning, "wal 2", refusal], said)


class Package(unittest.TestCase):
    def test_versions_are_the_same(self):
        manifest = ROOT / "Cargo.toml"
        if manifest.exists():
            version = re.search(r'(?m)^version = "(.+)"', manifest.read_text()).group(1)
            self.assertEqual(version, onewrite.__version__)

    def test_it_is_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())
        for path in PACKAGE.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    self.assertIsNotNone(node.returns, f"{path.name}: {node.name}")

    def test_the_command(self):
        command = [sys.executable, "-m", "onewrite", "--version"]
        done = subprocess.run(command, env=environment(), stdout=-1, stderr=-1, universal_newlines=True)
        if (PACKAGE / "bin/onewrite").exists():
            self.assertEqual(f"onewrite {onewrite.__version__}\n", done.stdout, done.stderr)
        else:
            self.assertIn("this package has no command", done.stderr)


if __name__ == "__main__":
    unittest.main()
