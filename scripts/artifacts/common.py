"""What the modules of a release share: places, programs, archives, and the test of a kill."""
import dataclasses
import gzip
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
# Where cargo builds for a release.
BUILT = ROOT / "target/dist"
# The compilers of scripts/release.
TOOLS = ROOT / "target/release-tools"
# Where packages are installed.
PLACES = ROOT / "target/release-test"
CARGO_HOME = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
LIBRARY = "libonewrite.so"
# Each target has these files, of these profiles.
FILES = {LIBRARY: "extension", "libonewrite_preload.so": "release", "onewrite": "release"}
LICENSES = ("LICENSE-APACHE", "LICENSE-MIT")
GLIBC = (2, 17)
MUSL = (1, 2)
# A program that hangs fails after this.
MOST_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class Target:
    name: str
    triple: str
    wheel: str
    # As readelf says them.
    elf_class: str
    machine: str
    # The emulator of another machine's programs.
    qemu: str = ""
    # musl's loader, which starts programs on a machine with glibc, too.
    loader: str = ""
    # Rust's standard library is not served for it, so the build compiles that, too.
    builds_std: bool = False

    @property
    def is_musl(self):
        return "-musl" in self.triple

    @property
    def zig(self):
        """The name that zig has for the triple."""
        return self.triple.replace("-unknown", "").replace("armv7", "arm")

    @property
    def processor(self):
        return self.name.removesuffix("-musl")


def run(command, **options):
    print("+", *command, flush=True)
    return subprocess.run(list(map(str, command)), check=True, **options)


def output(*command):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def fail(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def version():
    return re.search(r'(?m)^version = "(.+)"', (ROOT / "Cargo.toml").read_text()).group(1)


def commit_time():
    return int(output("git", "log", "-1", "--format=%ct"))


def fresh(directory):
    """The directory, which is empty now."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def licenses():
    return {name: (ROOT / name).read_bytes() for name in LICENSES}


def write_tar(path, files, programs=(), links=()):
    """Writes files, a dictionary of names and contents. The same files give the same bytes.

    `programs` are names of files that may be executed, `links` pairs of a name and where it points.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    moment = commit_time()
    entries = [*files.items(), *((name, None) for name, _ in links)]
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, moment) as compressed:
        with tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, contents in sorted(entries):
                entry = tarfile.TarInfo(name)
                entry.mtime, entry.mode = moment, 0o755 if name in programs else 0o644
                if contents is None:
                    entry.type, entry.linkname = tarfile.SYMTYPE, dict(links)[name]
                    archive.addfile(entry)
                    continue
                entry.size = len(contents)
                archive.addfile(entry, io.BytesIO(contents))
    print_size(path)


def print_size(path):
    print(f"{path.relative_to(ROOT)}: {size_of(path)}")


def size_of(path):
    size = path.stat().st_size
    return f"{size / 2**20:.2f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"


def clean_environment(**variables):
    """This environment without what would lead a package to another extension."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONEWRITE_", "PYTHONPATH"))}
    return {**kept, **{name: str(value) for name, value in variables.items()}}


def survives_a_kill(what, command, place):
    """Runs the command with DATABASE write, which commits and ends by SIGKILL, then with DATABASE read."""
    database = place / "app.db"
    options = {"cwd": place, "env": clean_environment(), "timeout": MOST_SECONDS}
    killed = subprocess.run([*map(str, command), database, "write"], **options)
    if killed.returncode != -signal.SIGKILL:
        fail(f"{what}: the program that commits ended with {killed.returncode}, not by its kill")
    run([*command, database, "read"], **options)
    print(f"{what}: loaded, committed, killed, read back")


def c_compiler(target):
    """The words of a C compiler for the target: this machine's own, or zig."""
    if not target.qemu and not target.is_musl:
        return ["cc"]
    libc = "" if target.is_musl else f".{GLIBC[0]}.{GLIBC[1]}"
    return [TOOLS / "bin/python3", "-m", "ziglang", "cc", "-target", f"{target.zig}{libc}",
            # As other compilers do without optimization.
            "-fno-sanitize=undefined"]


def sqlite_source():
    """The directory of the SQLite that the command is built with."""
    manifest = output("cargo", "metadata", "--format-version", "1", "--locked")
    found = re.search(r'"manifest_path":"([^"]*/libsqlite3-sys-[^"/]*)/Cargo.toml"', manifest)
    return Path(found.group(1)) / "sqlite3"
