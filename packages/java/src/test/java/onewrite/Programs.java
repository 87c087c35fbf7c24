package onewrite;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Programs that the tests run in Java machines of their own. */
final class Programs {
    private Programs() {}

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "write":
                write(arguments[1]);
                break;
            case "count":
                count(arguments[1]);
                break;
            case "load":
                load(arguments[1]);
                break;
            case "fail":
                tell(OneWrite::loadablePath, OneWrite::load, () -> OneWrite.connect("app.db"));
                break;
            case "copy":
                copy();
                break;
            case "threads":
                threads();
                break;
            case "elsewhere":
                elsewhere(arguments[1], arguments[2]);
                break;
            case "lower":
                lower(arguments[1]);
                break;
            case "wal":
                wal(arguments[1]);
                break;
            default:
                throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Commits row after row, and tells each. */
    private static void write(String path) throws SQLException {
        Connection db = OneWrite.connect(path);
        Driver.value(db, "CREATE TABLE t(x)");
        for (int row = 0; row < 1 << 20; row++) {
            Driver.value(db, "INSERT INTO t VALUES(" + row + ") RETURNING x");
            System.out.println(row);
        }
    }

    private static void count(String path) throws SQLException {
        try (Connection db = OneWrite.connect(path)) {
            System.out.println(Driver.value(db, "SELECT count(*) FROM t"));
        }
    }

    /** Loads twice. Then the driver opens by the URL. */
    private static void load(String path) throws Exception {
        tell(OneWrite::load, OneWrite::load);
        try (Connection db = DriverManager.getConnection(OneWrite.url(path))) {
            OneWrite.check(db);
            Driver.value(db, "CREATE TABLE t(x)");
        }
        System.out.println(ours());
    }

    private static void copy() throws Exception {
        Path copy = OneWrite.loadablePath();
        System.out.println(copy);
        System.out.println(copy.equals(OneWrite.loadablePath()));
        System.out.println(PosixFilePermissions.toString(Files.getPosixFilePermissions(copy.getParent())));
    }

    /** This package's files in the directory of temporary files. */
    private static Set<String> ours() throws Exception {
        try (Stream<Path> files = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> name.startsWith("onewrite"))
                    .collect(Collectors.toSet());
        }
    }

    private static void threads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        try {
            List<Callable<Boolean>> loads = Collections.nCopies(32, OneWrite::load);
            Set<Boolean> answers = new HashSet<>();
            for (Future<Boolean> answer : pool.invokeAll(loads)) {
                answers.add(answer.get());
            }
            System.out.println(answers);
        } finally {
            pool.shutdownNow();
        }
    }

    /** As on another system. The driver is loaded before, because it has a library for each. */
    private static void elsewhere(String system, String path) throws Exception {
        DriverManager.getConnection("jdbc:sqlite::memory:").close();
        System.setProperty("os.name", system);
        System.out.println(OneWrite.load());
        Connection db = OneWrite.connect("file:" + path + "?vfs=onewrite", Place.properties("journal_mode=waldio"));
        System.out.println(Driver.value(db, "PRAGMA journal_mode") + " " + Driver.value(db, "PRAGMA synchronous"));
        tell(() -> OneWrite.check(db));
    }

    /** The level of a connection that was put at NORMAL, and whether its commits are durable. */
    private static void lower(String path) throws Exception {
        Connection db = OneWrite.connect(path);
        Driver.value(db, "CREATE TABLE t(x)");
        Driver.value(db, "PRAGMA synchronous=NORMAL");
        String level = Place.field(db, OneWrite.check(db, null, "OFF"), "synchronous");
        System.out.println(level + " " + (Place.durableCalls(db) >= 5));
    }

    private static void wal(String path) throws Exception {
        Connection db = OneWrite.connect(path);
        System.out.println(Driver.value(db, "PRAGMA journal_mode=WAL"));
        tell(() -> Driver.value(db, "SELECT ? ->> '$.mode'", OneWrite.check(db)));
    }

    private static void tell(Callable<?>... uses) {
        for (Callable<?> use : uses) {
            try {
                System.out.println(use.call());
            } catch (Exception error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
