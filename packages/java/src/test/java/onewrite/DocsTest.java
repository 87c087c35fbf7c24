package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The examples of the documents run as they stand there. The package is what its files say. */
class DocsTest extends Place {
    private static final Path PACKAGE = Path.of(System.getProperty("basedir", "")).toAbsolutePath();
    private static final Path ROOT = PACKAGE.resolve("../..").normalize();
    private static final int MOST_LINES = 10;
    private static final int JAVA_11 = 55; // its version of class files

    private static List<String> found(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern).matcher(text);
        return matcher.results().map((MatchResult found) -> found.group(1)).collect(Collectors.toList());
    }

    private static List<String> examples() throws IOException {
        String languages = Files.readString(ROOT.resolve("docs/languages.md"));
        String section = found("(?ms)^## Java\n(.*?)^## ", languages).get(0);
        List<String> all = new ArrayList<>(found("(?s)```java\n(.*?)```", section));
        assertEquals(2, all.size(), section);
        List<String> ofReadme = found("(?s)```java\n(.*?)```", Files.readString(PACKAGE.resolve("README.md")));
        assertEquals(List.of(all.get(0)), ofReadme, "the first example is also in README.md");
        return all;
    }

    @Test
    void theExamplesRun() throws Exception {
        Files.copy(OneWrite.loadablePath(), directory.resolve("libonewrite.so"));
        for (String example : examples()) {
            assertTrue(example.lines().count() <= MOST_LINES, example);
            Files.writeString(directory.resolve("Example.java"), program(example));
            List<String> said = start("Example.java").printed();
            assertEquals(List.of("onewrite"), said);
            assertTrue(Files.deleteIfExists(directory.resolve("app.db")), example);
        }
    }

    /** The example, and then the check. Its connection is called {@code db}. */
    private static String program(String example) {
        String imports = example.lines().filter(line -> line.startsWith("import ")).collect(Collectors.joining("\n"));
        String code = example.lines().filter(line -> !line.startsWith("import ")).collect(Collectors.joining("\n"));
        return imports + "\npublic class Example { public static void main(String[] a) throws Exception {\n" + code
                + "\nString status = onewrite.OneWrite.check(db);\n"
                + "System.out.println(status.contains(\"\\\"mode\\\":\\\"onewrite\\\"\") ? \"onewrite\" : status);\n"
                + "db.close(); } }\n";
    }

    @Test
    void versionsAreTheSame() throws Exception {
        String version = found("(?m)^version = \"(.+)\"", Files.readString(ROOT.resolve("Cargo.toml"))).get(0);
        String ofPom = found("<version>(.+)</version>", Files.readString(PACKAGE.resolve("pom.xml"))).get(0);
        assertEquals(version, ofPom);
        assertEquals(version, field(connect(), OneWrite.check(connect()), "version"));
    }

    @Test
    void theClassesAreForJava11() throws Exception {
        try (DataInputStream file = new DataInputStream(OneWrite.class.getResourceAsStream("OneWrite.class"))) {
            assertEquals(0xCAFEBABE, file.readInt());
            file.readUnsignedShort();
            assertEquals(JAVA_11, file.readUnsignedShort());
        }
    }
}
