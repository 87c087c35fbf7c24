"""The crates for Rust, as `cargo publish` would upload them."""
import json
import shutil
import tarfile

from .common import DIST, PLACES, ROOT, clean_environment, fresh, output, print_size, run, survives_a_kill, version

TOOLS, TEST_TOOLS = (), ("cc",)
# Each needs those before it.
CRATES = ("onewrite-common", "onewrite")
# Where cargo builds them. In `target` it would take dependencies with other profiles.
BUILT = ROOT / "target/crates"

# A user's project, outside the workspace around it.
MANIFEST = """\
[workspace]

[package]
name = "commit"
version = "0.0.0"
edition = "2024"

[dependencies]
onewrite = {{ path = "onewrite-{version}" }}
rusqlite = {{ version = "{rusqlite}", features = ["bundled"] }}

[patch.crates-io]
onewrite-common = {{ path = "onewrite-common-{version}" }}
"""


def name(crate):
    return f"{crate}-{version()}.crate"


def make(_targets):
    """Packs them, and compiles each as its user would."""
    packages = [word for crate in CRATES for word in ("-p", crate)]
    # scripts/release has said that there are changes.
    run(["cargo", "package", "--quiet", "--locked", "--allow-dirty", "--target-dir", BUILT, *packages], cwd=ROOT)
    place = fresh(DIST / "crates")
    for crate in CRATES:
        shutil.copyfile(BUILT / "package" / name(crate), place / name(crate))
        print_size(place / name(crate))


def test(_target):
    """A program with rusqlite, outside the workspace, with the dependencies that the workspace has locked."""
    place = fresh(PLACES / "crates")
    for crate in CRATES:
        with tarfile.open(DIST / "crates" / name(crate)) as packed:
            packed.extractall(place)
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--no-deps"))
    engine = next(each for each in metadata["packages"] if each["name"] == "onewrite")
    rusqlite = next(each["req"] for each in engine["dependencies"] if each["name"] == "rusqlite")
    (place / "Cargo.toml").write_text(MANIFEST.format(version=version(), rusqlite=rusqlite))
    shutil.copyfile(ROOT / "Cargo.lock", place / "Cargo.lock")
    (place / "src").mkdir()
    shutil.copyfile(ROOT / "packages/tests/commit.rs", place / "src/main.rs")
    environment = clean_environment(CARGO_TARGET_DIR=BUILT, CARGO_INCREMENTAL=0)
    run(["cargo", "build", "--quiet"], cwd=place, env=environment)
    survives_a_kill("Rust", [BUILT / "debug/commit"], fresh(place / "data"))
