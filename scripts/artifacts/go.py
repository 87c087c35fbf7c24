"""The Go module with the extension of each target, which programs embed."""
import shutil
import tarfile

from . import emulated
from .common import (
    DIST, LIBRARY, PLACES, ROOT, c_compiler, clean_environment, fresh, licenses, run, survives_a_kill, version,
    write_tar,
)

TOOLS, TEST_TOOLS = (), ("go", "gcc")
SOURCE = ROOT / "packages/go"
# Go's names of the processors. A directory of each is embedded, so all are in the module.
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "armv7": "arm"}


def directory():
    return f"onewrite-go-{version()}"


def archive():
    return DIST / f"{directory()}.tar.gz"


def make(targets):
    sources = [path for path in SOURCE.iterdir() if path.is_file() and not path.name.endswith("_test.go")]
    files = licenses() | {path.name: path.read_bytes() for path in sources}
    files |= {f"lib/linux_{processor}/.keep": b"" for processor in PROCESSORS.values()}
    # A program embeds one file for its processor, whatever its C library.
    for target in targets:
        if target.is_musl:
            continue
        files[f"lib/linux_{PROCESSORS[target.name]}/{LIBRARY}"] = (DIST / target.name / LIBRARY).read_bytes()
    write_tar(archive(), {f"{directory()}/{name}": contents for name, contents in files.items()})


def test(target):
    place = fresh(PLACES / "go")
    with tarfile.open(archive()) as module:
        module.extractall(place)
    app = fresh(place / "app")
    shutil.copy(ROOT / "packages/tests/commit.go", app / "main.go")
    # SQLite is compiled without optimization, because the test waits for the device. The cache of
    # scripts/go-package has Go's own packages.
    environment = clean_environment(
        GOPATH=place / "path", GOMODCACHE=place / "modules", GOCACHE=ROOT / "target/go-package/cache",
        GOFLAGS="-modcacherw", GOWORK="off", GOTOOLCHAIN="local", CGO_ENABLED=1, CGO_CFLAGS="-O0 -g0",
        GOARCH=PROCESSORS[target.name], CC=" ".join(map(str, c_compiler(target))),
    )
    for words in (
        ["mod", "init", "app"],
        ["mod", "edit", "-require=onewrite@v0.0.0", f"-replace=onewrite=../{directory()}"],
        ["mod", "tidy"],
        ["build", "-o", "commit", "."],
    ):
        run(["go", *words], cwd=app, env=environment)
    survives_a_kill("the Go module", [*emulated.inside(target), app / "commit"], place)
