"""The gem of each target: the package's source and the extension."""
import subprocess

from . import emulated
from .common import (
    DIST, LIBRARY, PLACES, ROOT, clean_environment, commit_time, fail, fresh, licenses, print_size, run,
    survives_a_kill, version,
)

TOOLS, TEST_TOOLS = ("gem",), ("gem", "ruby")
SOURCE = ROOT / "packages/ruby"
# RubyGems' names of the machines, without a part of their own for the ABI of 32-bit ARM.
PLATFORMS = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "armv7": "arm-linux-gnu",
    "x86_64-musl": "x86_64-linux-musl",
    "aarch64-musl": "aarch64-linux-musl",
    "armv7-musl": "arm-linux-musl",
}


def path(target):
    return DIST / f"onewrite-{version()}-{PLATFORMS[target.name]}.gem"


def make(targets):
    for target in targets:
        build(target)
        print_size(path(target))


def build(target):
    place = fresh(ROOT / "target/gem" / target.name)
    sources = [SOURCE / "onewrite.gemspec", SOURCE / "README.md", *(SOURCE / "lib").rglob("*.rb")]
    files = licenses() | {str(source.relative_to(SOURCE)): source.read_bytes() for source in sources}
    files[f"native/{LIBRARY}"] = (DIST / target.name / LIBRARY).read_bytes()
    for name, contents in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(contents)
        (place / name).chmod(0o644)
    environment = clean_environment(SOURCE_DATE_EPOCH=commit_time(), ONEWRITE_GEM_PLATFORM=PLATFORMS[target.name])
    run(["gem", "build", "--silent", "--output", path(target), "onewrite.gemspec"], cwd=place, env=environment)


def test(target):
    """Installs the gem into a clean place, where the gem sqlite3 is the system's."""
    place, inside = fresh(PLACES / "gem"), emulated.inside(target)
    home = place / "home"
    run([*inside, "gem", "install", "--local", "--no-document", "--ignore-dependencies", "--install-dir", home,
         path(target)], env=clean_environment())
    ruby = [*inside, "env", f"GEM_HOME={home}", "ruby"]
    code = ["-r", "onewrite", "-e", "print OneWrite.loadable_path"]
    found = subprocess.check_output([*ruby, *code], env=clean_environment(), text=True)
    if not found.startswith(f"{home}/"):
        fail(f"the installed gem loads {found}")
    survives_a_kill("Ruby", [*ruby, ROOT / "packages/tests/commit.rb"], place)
