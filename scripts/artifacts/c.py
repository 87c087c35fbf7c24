"""For C, one archive for each target: the extension, the static library, the header, onewrite.pc."""
import os
import shlex
import subprocess
import tarfile
from pathlib import Path

from . import emulated
from .common import (
    BUILT, DIST, LIBRARY, PLACES, ROOT, c_compiler, fail, fresh, licenses, run, sqlite_source, survives_a_kill, version,
    write_tar,
)

TOOLS, TEST_TOOLS = (), ("cc", "pkg-config")
HEADER = ROOT / "crates/onewrite/include/onewrite.h"
STATIC = "libonewrite.a"
PLAIN = ROOT / "packages/tests/plain.c"
# For the static library.
GLIBC_LIBRARIES = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
# gcc links its unwinder by itself.
MUSL_LIBRARIES = "-lc"
# The linker would take the extension for -lonewrite. The program brings its SQLite.
PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..

Name: onewrite
Description: Durable SQLite commits in one device write
Version: {version}
Cflags: -I${{prefix}}/include
Libs: ${{prefix}}/lib/libonewrite.a {libraries}
"""


def directory(target):
    return f"onewrite-{version()}-{target.name}"


def archive(target):
    return DIST / f"{directory(target)}.tar.gz"


def static_library(target):
    return BUILT / target.triple / "release" / STATIC


def pkg_config(target):
    return PKG_CONFIG.format(version=version(), libraries=MUSL_LIBRARIES if target.is_musl else GLIBC_LIBRARIES)


def make(targets):
    for target in targets:
        files = licenses() | {
            "include/onewrite.h": HEADER.read_bytes(),
            f"lib/{LIBRARY}": (DIST / target.name / LIBRARY).read_bytes(),
            f"lib/{STATIC}": static_library(target).read_bytes(),
            "lib/pkgconfig/onewrite.pc": pkg_config(target).encode(),
        }
        write_tar(archive(target), {f"{directory(target)}/{name}": contents for name, contents in files.items()})


def test(target):
    """Programs that load the extension, and that are linked with the static library."""
    place = fresh(PLACES / "c")
    library = unpacked(target, place) / "lib"
    sqlite, compiler, inside = sqlite_source(), c_compiler(target), emulated.inside(target)
    run([*compiler, "-O0", "-c", "-o", place / "sqlite3.o", sqlite / "sqlite3.c"])
    linked = words_of_pkg_config(library / "pkgconfig")
    for name, words in (("loaded", []), ("linked", ["-DLINKED", *linked])):
        program = place / name
        source = ROOT / "packages/tests/commit.c"
        run([*compiler, f"-I{sqlite}", "-o", program, source, place / "sqlite3.o", *words, "-lm", "-lpthread", "-ldl"])
        survives_a_kill(f"C, {name}", [*inside, program, library / LIBRARY], fresh(place / f"{name}-data"))


def unpacked(target, place):
    with tarfile.open(archive(target)) as installed:
        installed.extractall(place)
    return place / directory(target)


def words_of_pkg_config(directory):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(directory)}
    command = ["pkg-config", "--cflags", "--libs", "onewrite"]
    return shlex.split(subprocess.check_output(command, env=environment, text=True))


def expect_mode(what, database):
    """After `onewrite run` of packages/tests/plain.c: the mode was in use, and it is a database of stock SQLite."""
    # Byte 19 is 2 in WAL mode.
    if not Path(f"{database}-onewrite").exists() or database.read_bytes()[19] != 2:
        fail(f"{what}: onewrite run did not use the mode, or left the database guarded")
    print(f"{what}: onewrite run used the mode, and left a database of stock SQLite")
