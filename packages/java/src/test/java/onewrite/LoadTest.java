package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.jar.JarOutputStream;
import java.util.zip.ZipEntry;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** load and loadablePath, each in a Java machine of its own. */
class LoadTest extends Place {
    private static final int MACHINE = 18; // e_machine of elf(5)
    private static final int AARCH64 = 183;

    /** A jar with a library for this machine, as a release has it. */
    private Path jar(byte[] library) throws Exception {
        Path jar = directory.resolve("natives.jar");
        try (OutputStream file = Files.newOutputStream(jar); JarOutputStream entries = new JarOutputStream(file)) {
            entries.putNextEntry(new ZipEntry("onewrite/" + Platform.folder() + "/libonewrite.so"));
            entries.write(library);
        }
        return jar;
    }

    private Child withJar(String what, String... arguments) throws Exception {
        Path jar = jar(Files.readAllBytes(OneWrite.loadablePath()));
        return start(what, arguments).with(jar).variable(Library.NAME, null);
    }

    private Path library(byte[] contents) throws Exception {
        return Files.write(directory.resolve("libonewrite.so"), contents);
    }

    @Test
    void itMakesTheVfsAvailableOnceAndAgain() throws Exception {
        assertEquals(List.of("true", "true", "[]"), start("load", path).printed());
    }

    @Test
    void itLoadsFromTheJarAndLeavesNothing() throws Exception {
        assertEquals(List.of("true", "true", "[]"), withJar("load", path).printed());
    }

    @Test
    void theCopyOfTheJarsLibraryIsPrivateAndIsDeletedInTheEnd() throws Exception {
        List<String> said = withJar("copy").printed();
        assertTrue(said.get(0).startsWith(in("tmp/onewrite-")), said.get(0));
        assertEquals(List.of("true", "rwx------"), said.subList(1, 3));
        assertFalse(Files.exists(Path.of(said.get(0)).getParent()), said.get(0));
    }

    @Test
    void aJarForOtherMachinesSaysSo() throws Exception {
        for (String line : start("fail").variable(Library.NAME, null).printed()) {
            assertEquals("this package has no extension (/onewrite/" + Platform.folder() + "/libonewrite.so): use "
                    + "the jar for this machine, or name the library in ONEWRITE_EXTENSION_LIBRARY", line);
        }
    }

    @Test
    void theSystemPropertyCountsMoreThanTheVariable() throws Exception {
        Child child = start("fail").option("-D" + Library.NAME + "=/nowhere/libonewrite.so");
        List<String> said = child.printed();
        assertEquals(3, said.size());
        for (String line : said) {
            assertEquals("ONEWRITE_EXTENSION_LIBRARY: there is no file /nowhere/libonewrite.so", line);
        }
    }

    @Test
    void aLibraryThatIsNoneIsNamedWithTheReason() throws Exception {
        Path library = library("no library, but longer than the header of one: ".repeat(9).getBytes());
        List<String> said = start("fail").variable(Library.NAME, library.toString()).printed();
        assertEquals(library.toString(), said.get(0));
        for (String line : said.subList(1, 3)) {
            assertTrue(line.startsWith("cannot load " + library + ": ") && line.contains(": it is no shared library: "), line);
        }
    }

    /** Linux would end the process. */
    @Test
    void aLibraryThatIsCutShortIsNamed() throws Exception {
        byte[] whole = Files.readAllBytes(OneWrite.loadablePath());
        Path library = library(Arrays.copyOf(whole, whole.length - 1));
        List<String> said = start("fail").variable(Library.NAME, library.toString()).printed();
        for (String line : said.subList(1, 3)) {
            assertEquals("cannot load " + library + ": it is cut short: install onewrite again, or name another library in "
                    + Library.NAME, line);
        }
    }

    @Test
    void aLibraryForAnotherMachineIsNamed() throws Exception {
        byte[] foreign = Files.readAllBytes(OneWrite.loadablePath());
        boolean isArm = Platform.processor().equals("aarch64");
        foreign[MACHINE] = (byte) (isArm ? 62 : AARCH64);
        Path library = library(foreign);
        String line = start("fail").variable(Library.NAME, library.toString()).printed().get(1);
        assertEquals("cannot load " + library + ": it is for " + (isArm ? "x86_64" : "aarch64")
                + ", and this Java is for " + Platform.processor()
                + ": install onewrite again, or name another library in ONEWRITE_EXTENSION_LIBRARY", line);
        Child fromJar = start("fail").with(jar(foreign)).variable(Library.NAME, null);
        line = fromJar.printed().get(1);
        assertTrue(line.startsWith("cannot load " + in("tmp/onewrite-")) && line.contains("it is for"), line);
        try (var left = Files.newDirectoryStream(directory.resolve("tmp"), "onewrite*")) {
            assertFalse(left.iterator().hasNext(), "a copy stays");
        }
    }

    /** It says that it needs musl's libc.so, as one for Alpine does. */
    @Test
    void aLibraryForMuslIsNamed() throws Exception {
        Assumptions.assumeFalse(Platform.usesMusl(), "SKIPPED: this is musl");
        String contents = Files.readString(OneWrite.loadablePath(), StandardCharsets.ISO_8859_1);
        Path library = library(contents.replace("libc.so.6\0", "libc.so\0\0\0").getBytes(StandardCharsets.ISO_8859_1));
        String line = start("fail").variable(Library.NAME, library.toString()).printed().get(1);
        assertEquals("cannot load " + library + ": it is for musl, and this program uses glibc: name another library in "
                + Library.NAME, line);
    }

    @Test
    void fromThreads() throws Exception {
        assertEquals(List.of("[true]"), start("threads").printed());
    }

    @Test
    void aMissingDriverIsNamed() throws Exception {
        String line = start("fail").without("sqlite-jdbc").printed().get(1);
        assertEquals("there is no sqlite-jdbc (org/sqlite/JDBC): add org.xerial:sqlite-jdbc to the class path", line);
    }

    @Test
    void otherSystemsGetAWarningAndStockWal() throws Exception {
        for (String system : List.of("Mac OS X", "Windows 11")) {
            Child child = start("elsewhere", system, path);
            assertEquals(
                    List.of("false", "wal 2", "the connection does not use onewrite: onewrite runs on Linux only"),
                    child.printed());
            assertTrue(child.errors().contains("onewrite runs on Linux only: databases are in stock WAL here"));
        }
    }
}
