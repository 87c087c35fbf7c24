"""The table of a release's sizes and times, dist/table.md. SHA256SUMS leaves it out: times differ."""
import contextlib
import os
import platform
import re
import resource
import time
from pathlib import Path

from . import c, deb, gem, npm, php, wheel
from .common import DIST, FILES, output, size_of

PATH = DIST / "table.md"
GNU_ONLY = {"Debian: `onewrite`", "Debian: `libonewrite-dev`", "Debian: `php-onewrite`"}
PACKAGES = {
    "wheel": wheel.path,
    "its package for npm": lambda target: npm.tarball(npm.platform_directory(target)),
    "gem": gem.path,
    "archive for C": c.archive,
    "Debian: `onewrite`": lambda target: deb.path(target, "onewrite"),
    "Debian: `libonewrite-dev`": lambda target: deb.path(target, "libonewrite-dev"),
    "Debian: `php-onewrite`": php.deb,
}


class Times:
    """How long each step took, by its name and its target: by the clock, and in processor time."""

    def __init__(self):
        self.taken = {}

    @contextlib.contextmanager
    def of(self, what, target=None):
        clock, processor = time.monotonic(), processor_seconds()
        yield
        self.taken[what, target and target.name] = time.monotonic() - clock, processor_seconds() - processor

    def cell(self, what, target=None):
        taken = self.taken.get((what, target and target.name))
        return "" if taken is None else " / ".join(f"{seconds / 60:.1f}" for seconds in taken)


def processor_seconds():
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def write(targets, times):
    text = "\n".join([*by_target(targets, times), "", *others(targets), "", of_all(times), ""])
    PATH.write_text(text)
    print(text, end="")


def by_target(targets, times):
    rows = [["", *(target.name for target in targets)], ["---"] * (len(targets) + 1)]
    for name in FILES:
        rows.append([f"`{name}`", *(size(DIST / target.name / name) for target in targets)])
    for what, path_of in PACKAGES.items():
        rows.append([what, *("" if target.is_musl and what in GNU_ONLY else size(path_of(target)) for target in targets)])
    for what in ("build", "test"):
        rows.append([f"{what}: minutes, processor minutes", *(times.cell(what, target) for target in targets)])
    return ["| " + " | ".join(row) + " |" for row in rows]


def others(targets):
    """The files that are for all targets."""
    own = {path_of(target) for what, path_of in PACKAGES.items() for target in targets
           if not (target.is_musl and what in GNU_ONLY)}
    rest = [path for path in sorted(DIST.rglob("*")) if path.is_file() and path not in own
            and path.name not in FILES and path.suffix != ".sha1" and path not in (PATH, DIST / "SHA256SUMS")]
    return ["| file | size |", "| --- | --- |", *(f"| `{path.relative_to(DIST)}` | {size_of(path)} |" for path in rest)]


def of_all(times):
    files = [path for path in DIST.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files) / 2**20
    return (f"All {len(files)} files have {total:.0f} MiB. Packages took {times.cell('packages')} minutes. "
            f"{machine()}, {output('rustc', '--version')}, commit {output('git', 'rev-parse', '--short', 'HEAD')}.")


def machine():
    found = re.search(r"(?m)^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[2]
    return f"{cores} cores of {found.group(1) if found else platform.machine()}, load {load:.1f} at the end"


def size(path):
    return size_of(path) if path.exists() else ""
