"""The packages for npm: the main one, and for each target one with the extension."""
import json
import shutil

from .common import DIST, LIBRARY, PLACES, ROOT, clean_environment, fresh, licenses, run, survives_a_kill, write_tar

TOOLS, TEST_TOOLS = ("node",), ("node", "npm")
SOURCE = ROOT / "packages/node"
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
    place = fresh(PLACES / "npm")
    (place / "package.json").write_text('{"private": true}\n')
    drivers = json.loads((SOURCE / "tests/drivers/package.json").read_text())["dependencies"]
    environment = clean_environment()
    run(["npm", "install", *OPTIONS, f"libsql@{drivers['libsql']}"], cwd=place, env=environment)
    # The packages for other machines are in no registry, so nothing is looked up.
    packages = [tarball(SOURCE), tarball(platform_directory(target))]
    run(["npm", "install", *OPTIONS, "--offline", *packages], cwd=place, env=environment)
    shutil.copy(ROOT / "packages/tests/commit.js", place)
    survives_a_kill("npm", ["node", place / "commit.js"], place)
