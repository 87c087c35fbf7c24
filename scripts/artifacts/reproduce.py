"""Builds the commit again, in another clone, and compares the bytes."""
import os
import shutil
import subprocess
from pathlib import Path

from .common import CARGO_HOME, DIST, ROOT, fail, fresh, output, run

PLACE = ROOT / "target/reproduce"
# Of another length, and deeper.
CLONE = PLACE / "another/place/clone.of.onewrite"
# None of these may reach the files. The caches of zig and pip are empty, too.
OTHERS = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "XDG_CACHE_HOME": str(PLACE / "cache")}


def compare(targets):
    fresh(PLACE)
    run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, CLONE])
    run(["git", "checkout", "--quiet", "--detach", output("git", "rev-parse", "HEAD")], cwd=CLONE)
    words = [CLONE / "scripts/release", "--targets", ",".join(target.name for target in targets)]
    run(words, cwd=CLONE, umask=0o077, env={**os.environ, **OTHERS, "CARGO_HOME": str(other_cargo_home())})
    here, there = sums(DIST), sums(CLONE / "dist")
    different = sorted(name for name in here | there if here.get(name) != there.get(name))
    if different:
        fail(f"not the same bytes in {DIST} and {CLONE / 'dist'}: {', '.join(different)}")
    shutil.rmtree(PLACE)
    print(f"built twice: the same bytes in {len(here)} files")


def other_cargo_home():
    """An empty one, with this one's settings, such as a registry of one's own."""
    home = PLACE / "cargo"
    home.mkdir()
    settings = CARGO_HOME / "config.toml"
    if settings.exists():
        shutil.copy(settings, home)
    return home


def sums(directory):
    """The sum of each file. Those of the directory itself must agree with its SHA256SUMS."""
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=directory, check=True)
    lines = Path(directory / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
