"""A bill of materials of the files that are built: the crates in them, as CycloneDX JSON."""
import datetime
import json
import re
import urllib.parse

from .common import DIST, ROOT, commit_time, output, print_size, version

TOOLS, TEST_TOOLS = (), ()
# Their crates are in the files. Crates that only build or test them are not listed.
PACKAGES = ("onewrite", "onewrite-cli", "onewrite-preload")


def path():
    return DIST / f"onewrite-{version()}.cdx.json"


def make(targets):
    crates = crates_of(targets)
    described = {(each["name"], each["version"]): each for each in metadata()["packages"]}
    sums = checksums()
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(commit_time(), datetime.timezone.utc).isoformat(),
            "component": {"type": "library", "name": "onewrite", "version": version()},
        },
        "components": [component(described[crate], sums.get(crate)) for crate in sorted(crates)] + [sqlite(described)],
    }
    path().write_text(json.dumps(document, indent=1) + "\n")
    print_size(path())


def metadata():
    return json.loads(output("cargo", "metadata", "--format-version", "1", "--locked"))


def crates_of(targets):
    """Names and versions of the crates with the features of a release."""
    packages = [word for package in PACKAGES for word in ("-p", package)]
    found = set()
    for target in targets:
        tree = output("cargo", "tree", "--locked", *packages, "-e", "normal", "--target", target.triple,
                      "--prefix", "none", "--format", "{p}")
        found |= set(re.findall(r"(?m)^(\S+) v(\S+)", tree))
    return found


def checksums():
    """Those of Cargo.lock. Our own crates have none."""
    lock = (ROOT / "Cargo.lock").read_text()
    found = re.findall(r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"', lock)
    return {(name, number): checksum for name, number, checksum in found}


def component(crate, checksum):
    described = {"type": "library", "name": crate["name"], "version": crate["version"]}
    if crate.get("license"):
        # Some crates write "MIT/Apache-2.0".
        described["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
    if checksum:
        described["purl"] = f"pkg:cargo/{crate['name']}@{urllib.parse.quote(crate['version'])}"
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def sqlite(described):
    """The SQLite that libsqlite3-sys compiles into the command. The extension has none."""
    manifest = next(each["manifest_path"] for (name, _), each in described.items() if name == "libsqlite3-sys")
    with open(manifest.replace("Cargo.toml", "sqlite3/sqlite3.h")) as header:
        number = re.search(r'#define SQLITE_VERSION\s+"(.+)"', header.read()).group(1)
    return {"type": "library", "name": "sqlite", "version": number, "licenses": [{"license": {"id": "blessing"}}]}


def test(_target):
    """There is nothing to install."""
