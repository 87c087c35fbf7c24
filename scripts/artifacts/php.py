"""Debian's package for PHP of each target: the extension, the package's source, a setting of php.ini."""
import os
import re
import shutil

from . import emulated
from .common import (
    DIST, LIBRARY, PLACES, ROOT, commit_time, fail, fresh, print_size, run, survives_a_kill, version,
)
from .deb import copyright_text

TOOLS, TEST_TOOLS = ("dpkg-deb",), ("dpkg", "php")
SOURCE = ROOT / "packages/php"
# Debian's names of the machines and of their directories.
MACHINES = {
    "x86_64": ("amd64", "x86_64-linux-gnu"),
    "aarch64": ("arm64", "aarch64-linux-gnu"),
    "armv7": ("armhf", "arm-linux-gnueabihf"),
}
# Of Debian 12, Ubuntu 24.04 and Debian 13. Each has a directory of its own for settings.
VERSIONS = ("8.2", "8.3", "8.4")

CONTROL = """\
Package: php-onewrite
Version: {version}
Architecture: {machine}
Maintainer: The maintainers of onewrite
Installed-Size: {kibibytes}
Depends: libc6 (>= 2.17), php-sqlite3 (>= 2:8.2)
Section: php
Priority: optional
Description: Durable SQLite commits in one device write, for PHP
 OneWrite::connect opens a database with PDO, OneWrite::open with SQLite3.
 "phpenmod onewrite" lets PHP load the extension without FFI.
"""
SETTING = """\
; configuration for onewrite, which SQLite3 loads
; priority=30
sqlite3.extension_dir=/{directory}
"""
DOCUMENTS = "usr/share/doc/php-onewrite"


def deb(target):
    return DIST / f"php-onewrite_{version()}_{MACHINES[target.name][0]}.deb"


def make(targets):
    for target in targets:
        if not target.is_musl:  # Debian has glibc
            build(target)
            print_size(deb(target))


def build(target):
    machine, triplet = MACHINES[target.name]
    directory = f"usr/lib/{triplet}/onewrite"
    settings = {f"etc/php/{number}/mods-available/onewrite.ini": SETTING.format(directory=directory)
                for number in VERSIONS}
    root = fresh(ROOT / "target/php" / target.name)
    for name, text in settings.items():
        write(root / name, text.encode())
    write(root / directory / LIBRARY, (DIST / target.name / LIBRARY).read_bytes())
    for path in [SOURCE / "autoload.php", SOURCE / "composer.json", *(SOURCE / "src").iterdir()]:
        write(root / "usr/share/php/OneWrite" / path.relative_to(SOURCE), path.read_bytes())
    # Where the source looks for the extension, also if the package is installed below another root.
    (root / "usr/share/php/OneWrite/lib").symlink_to(f"../../../../{directory}")
    for name, text in documents().items():
        write(root / DOCUMENTS / name, text)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    control = CONTROL.format(version=version(), machine=machine, kibibytes=-(-size // 1024))
    write(root / "DEBIAN/control", control.encode())
    write(root / "DEBIAN/conffiles", "".join(f"/{name}\n" for name in settings).encode())
    for path in [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        path.chmod(0o755)
    # It sorts the names, and no file is younger than the moment. With several threads xz makes other bytes.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time()), "DPKG_DEB_THREADS_MAX": "1"}
    run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, deb(target)], env=environment)


def documents():
    return {"copyright": copyright_text(), "README.md": (SOURCE / "README.md").read_bytes()}


def write(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    path.chmod(0o644)


def test(target):
    """Installs it below a root of its own, and commits with each way to load the extension."""
    place = fresh(PLACES / "php")
    root = place / "root"
    (root / "var/lib/dpkg/updates").mkdir(parents=True)
    (root / "var/lib/dpkg/info").mkdir()
    (root / "var/lib/dpkg/status").touch()
    # Its log would be the system's, and below the root nothing that it depends on is installed.
    forced = "--force-not-root,depends,architecture"
    run(["dpkg", f"--root={root}", f"--log={place}/log", forced, "--install", deb(target)])
    found = {path.name for path in (root / DOCUMENTS).iterdir()}
    if found != {"copyright", "README.md"}:
        fail(f"php-onewrite has the documents {sorted(found)}")
    setting = (root / f"etc/php/{VERSIONS[0]}/mods-available/onewrite.ini").read_text()
    directory = re.search(r"(?m)^sqlite3.extension_dir=(/.+)$", setting).group(1)
    program, inside = shutil.copy(ROOT / "packages/tests/commit.php", place), emulated.inside(target)
    for way, words in {
        "php.ini": ["-d", "ffi.enable=0", "-d", f"sqlite3.extension_dir={root}{directory}"],
        "FFI": ["-d", "sqlite3.extension_dir="],
    }.items():
        command = [*inside, "php", "-d", f"include_path={root}/usr/share/php", *words, program]
        survives_a_kill(f"PHP, {way}", command, fresh(place / f"data of {way}"))
