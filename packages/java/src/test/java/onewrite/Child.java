package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A Java machine that runs one of {@link Programs}, in a directory. Its variables are those of this one,
 * without what a user may have set. Its temporary files are in the directory {@code tmp}.
 */
final class Child implements AutoCloseable {
    static final String CLASS_PATH =
            System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    private static final List<String> OWN_VARIABLES =
            List.of("ONEWRITE_UPGRADE_WAL", "ONEWRITE_JOURNAL_MODE", "ONEWRITE_MAKE_DEFAULT");
    private static final int SIGKILLED = 128 + 9;
    private static final int MOST_SECONDS = 250;

    private final ProcessBuilder builder = new ProcessBuilder();
    private final List<String> options = new ArrayList<>();
    private final List<String> program = new ArrayList<>();
    private final Path directory;
    private String classPath = CLASS_PATH;
    private Process process;
    private BufferedReader output;

    Child(Path directory, String what, String... arguments) throws IOException {
        this.directory = directory;
        Files.createDirectories(directory.resolve("tmp"));
        options.add("-Djava.io.tmpdir=" + directory.resolve("tmp"));
        program.add(what.endsWith(".java") ? what : "onewrite.Programs");
        if (!what.endsWith(".java")) {
            program.add(what);
        }
        program.addAll(Arrays.asList(arguments));
        builder.environment().keySet().removeAll(OWN_VARIABLES);
    }

    Child variable(String name, String value) {
        Map<String, String> environment = builder.environment();
        environment.remove(name);
        if (value != null) {
            environment.put(name, value);
        }
        return this;
    }

    Child option(String option) {
        options.add(option);
        return this;
    }

    /** Puts it before the class path. */
    Child with(Path jar) {
        classPath = jar + File.pathSeparator + classPath;
        return this;
    }

    /** Takes the elements with this word off the class path. */
    Child without(String word) {
        List<String> kept = new ArrayList<>(Arrays.asList(classPath.split(File.pathSeparator)));
        kept.removeIf(element -> element.contains(word));
        classPath = String.join(File.pathSeparator, kept);
        return this;
    }

    Child run() throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"));
        command.addAll(options);
        command.addAll(List.of("-cp", classPath));
        command.addAll(program);
        builder.directory(directory.toFile()).command(command).redirectError(directory.resolve("errors").toFile());
        process = builder.start();
        CompletableFuture.delayedExecutor(MOST_SECONDS, TimeUnit.SECONDS).execute(process::destroyForcibly);
        output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        return this;
    }

    String line() throws IOException {
        return output.readLine();
    }

    /** The lines of a program that must succeed. */
    List<String> printed() throws Exception {
        run();
        return end(0);
    }

    /** Sends SIGKILL, and returns the lines that the child printed before. */
    List<String> kill() throws Exception {
        process.toHandle().destroyForcibly(); // Process's own would close the output
        return end(SIGKILLED);
    }

    private List<String> end(int code) throws Exception {
        List<String> lines = new ArrayList<>();
        for (String line = line(); line != null; line = line()) {
            lines.add(line);
        }
        process.waitFor(60, TimeUnit.SECONDS);
        assertEquals(code, process.exitValue(), () -> lines + errors());
        return lines;
    }

    String errors() {
        try {
            return Files.readString(directory.resolve("errors"));
        } catch (IOException error) {
            return error.toString();
        }
    }

    @Override
    public void close() {
        if (process != null) {
            process.destroyForcibly().onExit().join();
        }
    }
}
