"""Tests what was built for musl: by C programs, because no driver of another language runs on musl here."""
import subprocess

from . import c, emulated, wheel
from .common import (
    LIBRARY, PLACES, ROOT, c_compiler, clean_environment, fail, fresh, run, sqlite_source, survives_a_kill, version,
)

COMMIT = ROOT / "packages/tests/commit.c"


def test(target):
    """The command of the wheel starts, and verifies what programs leave that are linked or load the extension."""
    inside = emulated.inside(target)
    command = [*inside, wheel.installed_command(target)]
    said = subprocess.check_output([*command, "--version"], text=True)
    if said != f"onewrite {version()}\n":
        fail(f"{target.name}: the command says {said}")
    place, sqlite = fresh(PLACES / target.name), sqlite_source()
    libraries = c.unpacked(target, place) / "lib"
    compiler = [*c_compiler(target), "-O1", "-fPIC", f"-I{sqlite}"]
    # Once for all programs: it takes longer than everything else here.
    run([*compiler, "-c", "-o", place / "sqlite3.o", sqlite / "sqlite3.c"])

    def commits(name, words, before):
        """Compiles a program, and runs it after these words."""
        program, data = place / name, fresh(place / f"{name}-data")
        run([*compiler, "-o", program, COMMIT, place / "sqlite3.o", *words])
        survives_a_kill(f"{target.name}, {name}", [*inside, *before, program, libraries / LIBRARY], data)
        run([*command, "verify", data / "app.db"], stdout=subprocess.DEVNULL)

    linked = c.words_of_pkg_config(libraries / "pkgconfig")
    # zig does not link its unwinder by itself, as gcc does.
    commits("linked", ["-static", "-DLINKED", *linked, "-lunwind"], [])
    commits("loaded", ["-dynamic"], [target.loader])
    test_run(target, command, compiler, place)


def test_run(target, command, compiler, place):
    """A program whose SQLite is a library of its own, under `onewrite run`."""
    library, program, database = place / "libsqlite3.so", place / "plain", place / "plain.db"
    run([*compiler, "-shared", "-fPIC", "-o", library, place / "sqlite3.o"])
    run([*compiler, "-dynamic", "-o", program, c.PLAIN, library, f"-Wl,-rpath,{place}"])
    run([*command, "run", "--", program, database], env=clean_environment())
    c.expect_mode(target.name, database)
