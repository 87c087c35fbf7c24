"""The Python wheel of each target: the package, the extension and the command."""
import base64
import hashlib
import subprocess
import sys
import time
import zipfile

from . import emulated
from .common import (
    DIST, GLIBC, MUSL, PLACES, ROOT, clean_environment, commit_time, fail, fresh, licenses, print_size, run, version,
)

TOOLS, TEST_TOOLS = (), ()
SOURCE = ROOT / "packages/python"
SUMMARY = "Durable SQLite commits in one device write"


def make(targets):
    for target in targets:
        pack(path(target), "onewrite", files(target))
        print_size(path(target))


def path(target):
    return DIST / f"onewrite-{version()}-py3-none-{'.'.join(platforms(target))}.whl"


def files(target):
    """The files of a wheel without its RECORD: name, contents, whether it is a program."""
    for source in sorted((SOURCE / "onewrite").rglob("*")):
        if source.suffix in (".py", ".typed"):
            yield str(source.relative_to(SOURCE)), source.read_bytes(), False
    for built in (DIST / target.name).iterdir():
        yield f"onewrite/bin/{built.name}", built.read_bytes(), True
    info = f"onewrite-{version()}.dist-info"
    yield f"{info}/METADATA", metadata("onewrite", SUMMARY, SOURCE / "README.md").encode(), False
    yield f"{info}/WHEEL", tags(platforms(target)).encode(), False
    yield f"{info}/entry_points.txt", b"[console_scripts]\nonewrite = onewrite.__main__:main\n", False
    for name, text in licenses().items():
        yield f"{info}/licenses/{name}", text, False


def metadata(name, summary, readme):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version()}",
        f"Summary: {summary}",
        "License-Expression: MIT OR Apache-2.0",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
        "",
        readme.read_text(),
    ]
    return "\n".join(lines)


def platforms(target):
    if target.is_musl:
        return [f"musllinux_{MUSL[0]}_{MUSL[1]}_{target.wheel}"]
    return [f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{target.wheel}", f"manylinux2014_{target.wheel}"]


def tags(of):
    lines = "".join(f"Tag: py3-none-{platform}\n" for platform in of)
    return f"Wheel-Version: 1.0\nGenerator: scripts/release\nRoot-Is-Purelib: false\n{lines}"


def pack(into, name, of):
    """Writes a wheel of this package. `of` are its files without the RECORD, as of `files`."""
    moment = time.gmtime(commit_time())[:6]
    record = []
    with zipfile.ZipFile(into, "w") as wheel:
        def add(file, contents, is_program):
            entry = zipfile.ZipInfo(file, moment)
            entry.create_system = 3  # Unix, which has permissions
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(entry, contents, zipfile.ZIP_DEFLATED, 9)

        for file, contents, is_program in sorted(of):
            digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(contents)}\n")
            add(file, contents, is_program)
        file = f"{name}-{version()}.dist-info/RECORD"
        add(file, "".join([*record, f"{file},,\n"]).encode(), False)


def installed_command(target):
    """Installs the wheel as on a machine of the target. Returns the command in it."""
    place = fresh(PLACES / f"python-{target.name}")
    run([sys.executable, "-m", "venv", place])
    python, packages = place / "bin/python3", place / "packages"
    run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", "--target", packages,
         "--only-binary=:all:", "--platform", platforms(target)[0], path(target)])
    return packages / "onewrite/bin/onewrite"


def test(target):
    """Installs the wheel into a fresh place, and runs the package's tests with it. They also kill."""
    place, inside = fresh(PLACES / "python"), emulated.inside(target)
    run([*inside, "python3" if inside else sys.executable, "-m", "venv", place])
    python = [*inside, place / "bin/python3"]
    run([*python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", path(target)])
    run([*python, "-m", "unittest", "discover", "-s", SOURCE / "tests"], cwd=place, env=clean_environment())
    said = subprocess.check_output([*inside, place / "bin/onewrite", "--version"], text=True)
    if said != f"onewrite {version()}\n":
        fail(f"the installed command says {said}")
    if not inside:  # qemu-user has no pwritev2 with flags, which doctor measures
        run([place / "bin/onewrite", "doctor", place], stdout=subprocess.DEVNULL)
