"""The jar with the extension of each target, in a directory that is a Maven repository."""
import hashlib
import re
import shutil
from pathlib import Path

from . import emulated
from .common import DIST, LIBRARY, PLACES, ROOT, clean_environment, fresh, print_size, run, survives_a_kill, version

TOOLS = TEST_TOOLS = ("mvn", "javac")
POM = ROOT / "packages/java/pom.xml"
REPOSITORY = DIST / "maven"
# Maven puts its downloads there. scripts/java-package uses it, too.
DOWNLOADS = ROOT / "target/maven"
OPTIONS = ("--batch-mode", "--no-transfer-progress", "--quiet", f"-Dmaven.repo.local={DOWNLOADS}")
RESOLVE = "org.apache.maven.plugins:maven-dependency-plugin:3.11.0:copy-dependencies"

# A user's project.
PROJECT = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>app</groupId>
  <artifactId>app</artifactId>
  <version>1</version>
  <repositories>
    <repository>
      <id>onewrite</id>
      <url>{repository}</url>
    </repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>onewrite</groupId>
      <artifactId>onewrite</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.xerial</groupId>
      <artifactId>sqlite-jdbc</artifactId>
      <version>{driver}</version>
    </dependency>
  </dependencies>
</project>
"""


def make(targets):
    natives = fresh(ROOT / "target/natives")
    for target in targets:
        place = natives / f"onewrite/linux-{'musl-' if target.is_musl else ''}{target.processor}"
        place.mkdir(parents=True)
        shutil.copyfile(DIST / target.name / LIBRARY, place / LIBRARY)
    # Nothing of an earlier build stays.
    built = fresh(ROOT / "target/java")
    run(["mvn", *OPTIONS, "-f", POM, f"-Donewrite.natives={natives}", "-Dmaven.test.skip=true", "package"])
    name = f"onewrite-{version()}"
    place = fresh(REPOSITORY / "onewrite/onewrite" / version())
    add(built / f"{name}.jar", place / f"{name}.jar")
    add(POM, place / f"{name}.pom")
    print_size(place / f"{name}.jar")


def add(source, path):
    """Maven warns of a file without a checksum."""
    shutil.copyfile(source, path)
    Path(f"{path}.sha1").write_text(hashlib.sha1(path.read_bytes()).hexdigest())


def test(target):
    place = fresh(PLACES / "maven")
    # Nothing of an earlier release stays.
    shutil.rmtree(DOWNLOADS / "onewrite", ignore_errors=True)
    driver = re.search(r"<sqlite-jdbc.version>(.+)</", POM.read_text()).group(1)
    project = PROJECT.format(repository=REPOSITORY.as_uri(), version=version(), driver=driver)
    (place / "pom.xml").write_text(project)
    jars = place / "jars"
    run(["mvn", *OPTIONS, "-f", place / "pom.xml", f"-DoutputDirectory={jars}", RESOLVE], env=clean_environment())
    run(["javac", "-cp", f"{jars}/*", "-d", place, ROOT / "packages/tests/Commit.java"])
    # A 32-bit program under qemu-user cannot list a directory of a 64-bit ext4. So each jar has its name, and the
    # driver, which lists the directory for its library, has one in memory.
    classes = ":".join(map(str, [*sorted(jars.glob("*.jar")), place]))
    in_memory = ["-Dorg.sqlite.tmpdir=/dev/shm"] if target.qemu else []
    program = ["java", *in_memory, "-cp", classes, "Commit"]
    survives_a_kill("Maven", [*emulated.inside(target), *program], place)
