"""Debian's packages: onewrite with the command and the extension, libonewrite-dev for C."""
import gzip
import os
import shutil
import subprocess

from . import c, emulated
from .common import (
    DIST, GLIBC, LIBRARY, PLACES, ROOT, c_compiler, clean_environment, commit_time, fail, fresh, print_size, run,
    sqlite_source, survives_a_kill, version,
)

TOOLS, TEST_TOOLS = ("dpkg-deb",), ("dpkg", "dpkg-deb", "cc", "pkg-config", "man")
SOURCE = ROOT / "packages/debian"
# Debian's names: of the processor, and of its directory of libraries.
ARCHITECTURES = {
    "x86_64": ("amd64", "x86_64-linux-gnu"),
    "aarch64": ("arm64", "aarch64-linux-gnu"),
    "armv7": ("armhf", "arm-linux-gnueabihf"),
}
CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: the onewrite developers
Installed-Size: {size}
{relations}Section: {section}
Priority: optional
Description: {description}
"""
COMMAND = f"""\
Depends: libc6 (>= {GLIBC[0]}.{GLIBC[1]}), libgcc-s1
Recommends: sqlite3
"""
COMMAND_DESCRIPTION = """\
durable SQLite commits in one device write
 A SQLite extension (VFS) with journal modes that make a commit durable in one
 device write, and the command onewrite: it runs unchanged programs in these
 modes, and backs up, verifies and recovers their databases."""
DEVELOPMENT = "Suggests: onewrite, libsqlite3-dev\n"
DEVELOPMENT_DESCRIPTION = """\
durable SQLite commits in one device write (development files)
 The static library and the header for C programs that bring their SQLite."""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2026 the onewrite developers
License: MIT or Apache-2.0
 On Debian systems the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
 The MIT license follows.
 .
"""


def make(targets):
    pages = man_pages()
    for target in targets:
        if target.name in ARCHITECTURES:
            write(target, "onewrite", "database", COMMAND, COMMAND_DESCRIPTION, command_files(target, pages))
            files = development_files(target)
            write(target, "libonewrite-dev", "libdevel", DEVELOPMENT, DEVELOPMENT_DESCRIPTION, files)


def path(target, name):
    return DIST / f"{name}_{version()}_{ARCHITECTURES[target.name][0]}.deb"


def man_pages():
    """What the command's help says, by clap_mangen: name and text."""
    place = fresh(ROOT / "target/man")
    run(["cargo", "run", "--quiet", "--locked", "-p", "onewrite-cli", "--example", "man-pages", "--", place], cwd=ROOT)
    return {page.name: page.read_bytes() for page in place.iterdir()}


def command_files(target, pages):
    """The path of each file, with its contents and its mode. A link has a text and no mode."""
    libraries = ARCHITECTURES[target.name][1]
    files = {
        "usr/bin/onewrite": (built(target, "onewrite"), 0o755),
        f"usr/lib/onewrite/{LIBRARY}": (built(target, LIBRARY), 0o644),
        "usr/lib/onewrite/libonewrite_preload.so": (built(target, "libonewrite_preload.so"), 0o644),
        # There SQLite finds it by its name alone.
        f"usr/lib/{libraries}/{LIBRARY}": (f"../onewrite/{LIBRARY}", None),
        "usr/share/doc/onewrite/changelog.gz": (compressed((ROOT / "CHANGELOG.md").read_bytes()), 0o644),
        "usr/share/doc/onewrite/copyright": (copyright_text(), 0o644),
        "usr/share/doc/onewrite/examples/app.service": ((SOURCE / "app.service").read_bytes(), 0o644),
    }
    return files | {f"usr/share/man/man1/{name}.gz": (compressed(page), 0o644) for name, page in pages.items()}


def development_files(target):
    libraries = f"usr/lib/{ARCHITECTURES[target.name][1]}"
    prefix = "${pcfiledir}/" + "/".join(".." for _ in libraries.split("/"))
    text = c.pkg_config(target).replace("prefix=${pcfiledir}/../..", f"prefix={prefix}")
    text = text.replace("${prefix}/lib/", "${pcfiledir}/../")
    return {
        "usr/include/onewrite.h": (c.HEADER.read_bytes(), 0o644),
        f"{libraries}/{c.STATIC}": (c.static_library(target).read_bytes(), 0o644),
        f"{libraries}/pkgconfig/onewrite.pc": (text.encode(), 0o644),
        "usr/share/doc/libonewrite-dev/copyright": (copyright_text(), 0o644),
    }


def built(target, name):
    return (DIST / target.name / name).read_bytes()


def compressed(contents):
    return gzip.compress(contents, 9, mtime=0)


def copyright_text():
    lines = (ROOT / "LICENSE-MIT").read_text().splitlines()
    return (COPYRIGHT + "".join(f" {line or '.'}\n" for line in lines)).encode()


def write(target, name, section, relations, description, files):
    place = fresh(ROOT / "target/deb")
    for file, (contents, mode) in files.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        if mode is None:
            (place / file).symlink_to(contents)
        else:
            (place / file).write_bytes(contents)
            (place / file).chmod(mode)
    size = sum(len(contents) for contents, mode in files.values() if mode)
    control = CONTROL.format(
        name=name, version=version(), architecture=ARCHITECTURES[target.name][0], size=-(-size // 1024),
        relations=relations, section=section, description=description,
    )
    (place / "DEBIAN").mkdir()
    (place / "DEBIAN/control").write_text(control)
    (place / "DEBIAN/control").chmod(0o644)
    for each in [place, *place.rglob("*")]:
        if each.is_dir():
            each.chmod(0o755)
        os.utime(each, (commit_time(), commit_time()), follow_symlinks=False)
    # With several threads xz makes other bytes.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time()), "DPKG_DEB_THREADS_MAX": "1"}
    words = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", place, path(target, name)]
    run(words, env=environment, stdout=subprocess.DEVNULL)
    print_size(path(target, name))


def test(target):
    """Installs both into a directory that dpkg takes for a machine. Programs load the extension, and are linked."""
    place = fresh(PLACES / "deb")
    for name in ("info", "updates"):
        (place / "var/lib/dpkg" / name).mkdir(parents=True)
    (place / "var/lib/dpkg/status").touch()
    packages = [path(target, name) for name in ("onewrite", "libonewrite-dev")]
    log = place / "var/log/dpkg.log"
    log.parent.mkdir()
    # Nothing else is installed there.
    forced = "--force-not-root,depends,architecture"
    run(["dpkg", f"--root={place}", f"--log={log}", forced, "--install", *packages])
    libraries = place / "usr/lib" / ARCHITECTURES[target.name][1]
    sqlite, data = sqlite_source(), fresh(PLACES / "deb-data")
    compiler, inside = c_compiler(target), emulated.inside(target)
    run([*compiler, "-O0", "-fPIC", "-c", "-o", data / "sqlite3.o", sqlite / "sqlite3.c"])
    linked = c.words_of_pkg_config(libraries / "pkgconfig")
    for name, words in (("loaded", []), ("linked", ["-DLINKED", *linked])):
        program, source = data / name, ROOT / "packages/tests/commit.c"
        run([*compiler, f"-I{sqlite}", "-o", program, source, data / "sqlite3.o", *words, "-lm", "-lpthread", "-ldl"])
        survives_a_kill(f"Debian, {name}", [*inside, program, libraries / LIBRARY], fresh(data / f"{name}-data"))
    command = [*inside, place / "usr/bin/onewrite"]
    run([*command, "verify", data / "loaded-data/app.db"], stdout=subprocess.DEVNULL)
    test_run(command, compiler, data)
    test_man_pages(place / "usr/share/man/man1")


def test_run(command, compiler, data):
    """The installed command finds its libraries. The program leaves its database open."""
    database = data / "plain.db"
    run([*compiler, "-shared", "-o", data / "libsqlite3.so", data / "sqlite3.o"])
    sqlite = ["-I", sqlite_source(), data / "libsqlite3.so", f"-Wl,-rpath,{data}"]
    run([*compiler, "-o", data / "plain", c.PLAIN, *sqlite])
    run([*command, "run", "--", data / "plain", database], env=clean_environment())
    c.expect_mode("Debian", database)


def test_man_pages(directory):
    """Each command has a page, which man can read."""
    pages = sorted(page.name for page in directory.iterdir())
    for page in pages:
        words = ["man", "--warnings", "--pager=cat", "--local-file", directory / page]
        shown = subprocess.run(words, capture_output=True, text=True)
        if shown.returncode or shown.stderr:
            fail(f"{page}: man says {shown.stderr or shown.returncode}")
    if not {"onewrite.1.gz", "onewrite-run.1.gz", "onewrite-backup.1.gz"} <= set(pages):
        fail(f"man pages are missing: there are {', '.join(pages)}")
