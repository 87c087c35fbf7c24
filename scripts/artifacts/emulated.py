"""Debian for ARM in a directory, where programs run under qemu-user.

Its packages are unpacked and nothing of them is configured, so it needs no root and changes no setting of this
machine. A program runs in a namespace of its own: with this directory as its root, and with a kernel that
starts programs for ARM.
"""
import os
import re
import shutil
import subprocess
from pathlib import Path

from .common import PLACES, ROOT, fail, fresh, run

TOOLS = ("apt-get", "dpkg-deb", "unshare")
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The languages, what their tests start, and musl's loader. Node for 32-bit ARM needs libatomic.
PACKAGES = (
    "coreutils", "dash", "libatomic1", "musl", "openjdk-17-jre-headless", "php8.2-cli", "php8.2-sqlite3", "procps",
    "python3-venv", "ruby", "ruby-sqlite3",
)
# Debian's names of the machines.
MACHINES = {"aarch64": "arm64", "armv7": "armhf"}
DOWNLOADS = ROOT / "target/release-debian"
ENTER = Path(__file__).with_name("enter")


def inside(target):
    """The words before a command that run it on the target's machine. None for this machine."""
    if not target.qemu:
        return []
    temporary = PLACES / f"tmp-{target.name}"
    temporary.mkdir(parents=True, exist_ok=True)
    return ["unshare", "--map-root-user", "--mount", ENTER, root(target), binary_format(target),
            temporary]


def binary_format(target):
    """The line of binfmt_misc for the target's programs, also those that are position-independent."""
    elf_class, machine = ("02", "b7") if target.elf_class == "ELF64" else ("01", "28")
    head = ["7f", "45", "4c", "46", elf_class, "01", "01", *["00"] * 9, "02", "00", machine, "00"]
    mask = [*["ff"] * 7, *["00"] * 9, "fe", "ff", "ff", "ff"]
    magic, mask = ("".join(f"\\x{byte}" for byte in each) for each in (head, mask))
    # F: the kernel opens the emulator now, because the root has none.
    return f":onewrite:M::{magic}:{mask}:{shutil.which(target.qemu)}:F"


def root(target):
    """The directory with Debian's packages. It is made once."""
    machine = MACHINES[target.processor]
    place, mark = DOWNLOADS / machine, DOWNLOADS / f"{machine}.made"
    wanted = " ".join((SUITE, *PACKAGES))
    if mark.exists() and mark.read_text() == wanted:
        return place
    mark.unlink(missing_ok=True)
    fresh(place)
    for package in download(machine, fresh(DOWNLOADS / f"{machine}-apt")):
        run(["dpkg-deb", "-x", package, place], stdout=subprocess.DEVNULL)
    shutil.rmtree(DOWNLOADS / f"{machine}-apt")
    (place / "tmp").mkdir(exist_ok=True)
    configure_php(place)
    [java] = place.glob("usr/lib/jvm/java-17-openjdk-*/bin/java")
    (place / "usr/bin/java").symlink_to(f"/{java.relative_to(place)}")
    mark.write_text(wanted)
    return place


def download(machine, place):
    """Downloads the packages with all that they need, without the lists and settings of this machine."""
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True)
    (place / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    (place / "status").touch()
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list", "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": place / "lists", "Dir::State::status": place / "status",
        "Dir::Cache": place / "cache", "APT::Sandbox::User": "",
        "APT::Architecture": machine, "APT::Architectures": machine, "APT::Update::Error-Mode": "any",
        "Acquire::Retries": 3, "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    apt = ["apt-get", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")), "-qq"]
    try:
        run([*apt, "update"])
        run([*apt, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES])
    except (OSError, subprocess.CalledProcessError):
        fail(f"Debian's packages for {machine} cannot be downloaded. It needs apt-get and debian-archive-keyring")
    return sorted((place / "cache/archives").glob("*.deb"))


def mirror():
    """The mirror of Debian that this machine uses."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = re.search(r"(?m)^\S+/debian/*$", subprocess.run(words, capture_output=True, text=True).stdout)
    return found.group() if found else fail("apt has no Debian mirror among its sources")


def configure_php(place):
    """What the packages do when they are installed: the program's name, and the settings that load its modules."""
    os.symlink("php8.2", place / "usr/bin/php")
    settings = place / "etc/php/8.2/cli/conf.d"
    settings.mkdir(parents=True, exist_ok=True)
    for setting in place.glob("usr/share/php8.2-*/*/*.ini"):
        priority = re.search(r"(?m)^; priority=(\d+)", setting.read_text())
        shutil.copyfile(setting, settings / f"{priority.group(1) if priority else 20}-{setting.name}")
