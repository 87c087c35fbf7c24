"""SQLite's sources from Debian, for the scripts that compile them."""
import subprocess
import tempfile
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class CannotRun(Exception):
    """Why a script cannot run, and the exit code for it."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def run(command, **more):
    """Runs a command; shows its output only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def mirror():
    """The Debian mirror that this machine's apt uses."""
    answer = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    mirrors = sorted(uri for uri in set(answer.split()) if uri.rstrip("/").endswith("/debian"))
    if not mirrors:
        raise CannotRun("apt has no Debian mirror among its sources", 3)
    return mirrors[0]


def from_debian(suite, place):
    """Unpacks the source package of a suite into a directory, and returns the tree there.

    The system's apt stays as it is. A tree that is there already is not fetched again.
    """
    place.mkdir(parents=True, exist_ok=True)
    found = sorted(place.glob("sqlite3-*/VERSION"))
    if found:
        return found[-1].parent
    if not Path(KEYRING).exists():
        raise CannotRun(f"no {KEYRING}: install debian-archive-keyring", 3)
    with tempfile.TemporaryDirectory(dir=place) as apt:
        archive = download(suite, Path(apt))
        unpacked = Path(apt) / "unpacked"
        unpacked.mkdir()
        run(["tar", "xf", archive, "-C", unpacked])
        (tree,) = unpacked.iterdir()
        return tree.rename(place / tree.name)


def download(suite, apt):
    """The archive of the source package, in a directory that apt has for itself."""
    (apt / "lists/partial").mkdir(parents=True)
    (apt / "cache/archives/partial").mkdir(parents=True)
    sources = apt / "sources.list"
    options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::lists={apt}/lists",
               f"Dir::Cache={apt}/cache", "APT::Sandbox::User=", "APT::Update::Error-Mode=any"]
    flags = [word for option in options for word in ("-o", option)]
    try:
        sources.write_text(f"deb-src [signed-by={KEYRING}] {mirror()} {suite} main\n")
        run(["apt-get", *flags, "update"])
        run(["apt-get", *flags, "source", "--download-only", "sqlite3"], cwd=apt)
    except (CannotRun, FileNotFoundError) as error:
        raise CannotRun(f"SQLite's source could not be fetched: {error}", 3) from error
    (archive,) = (path for path in apt.glob("sqlite3_*.orig.tar.*") if path.suffix != ".asc")
    return archive
