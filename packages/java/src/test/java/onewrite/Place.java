package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Properties;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** A directory with a database in it. Each connection of a test is closed after it. */
@Timeout(300)
abstract class Place {
    @TempDir
    Path directory;

    String path;
    private final Deque<AutoCloseable> opened = new ArrayDeque<>();

    @BeforeEach
    void name() {
        path = in("app.db");
    }

    @AfterEach
    void closeAll() throws Exception {
        while (!opened.isEmpty()) {
            opened.pop().close();
        }
    }

    String in(String name) {
        return directory.resolve(name).toString();
    }

    <T extends AutoCloseable> T closing(T resource) {
        opened.push(resource);
        return resource;
    }

    Connection connect(String... properties) throws SQLException {
        return connectTo(path, properties);
    }

    Connection connectTo(String other, String... properties) throws SQLException {
        return closing(OneWrite.connect(other, properties(properties)));
    }

    Connection stock() throws SQLException {
        return closing(DriverManager.getConnection("jdbc:sqlite:" + path, properties("busy_timeout=0")));
    }

    Child start(String what, String... arguments) throws IOException {
        return closing(new Child(directory, what, arguments));
    }

    static Properties properties(String... pairs) {
        Properties properties = new Properties();
        for (String pair : pairs) {
            properties.setProperty(pair.split("=")[0], pair.split("=")[1]);
        }
        return properties;
    }

    static String one(Connection db, String sql) throws SQLException {
        return Driver.value(db, sql);
    }

    static void run(Connection db, String... statements) throws SQLException {
        for (String statement : statements) {
            Driver.value(db, statement);
        }
    }

    static void commitARow(Connection db) throws SQLException {
        run(db, "BEGIN IMMEDIATE", "CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES(1)", "COMMIT");
    }

    static String field(Connection db, String status, String field) throws SQLException {
        return Driver.value(db, "SELECT ? ->> ?", status, "$." + field);
    }

    /** How many calls made five commits durable. The first one is not counted: its level is new. */
    static long durableCalls(Connection db) throws SQLException {
        long before = 0;
        long after = 0;
        for (int commit = 0; commit <= 5; commit++) {
            run(db, "INSERT INTO t VALUES(1)");
            String status = OneWrite.check(db, null, "OFF");
            after = Long.parseLong(field(db, status, "flushes")) + Long.parseLong(field(db, status, "write_through"));
            before = commit == 0 ? after : before;
        }
        return after - before;
    }

    /** Expects an OneWriteException that has these words, in this order. */
    static void fails(Executable use, String... words) {
        expect(OneWriteException.class, use, words);
    }

    static void refuses(Executable use, String... words) {
        expect(IllegalArgumentException.class, use, words);
    }

    private static void expect(Class<? extends Exception> type, Executable use, String... words) {
        String said = assertThrows(type, use).getMessage();
        int from = 0;
        for (String word : words) {
            int at = said.indexOf(word, from);
            assertTrue(at >= 0, () -> "no " + Arrays.toString(words) + " in: " + said);
            from = at + word.length();
        }
    }

    static void assertRows(int rows, Connection db) throws SQLException {
        assertEquals(String.valueOf(rows), one(db, "SELECT count(*) FROM t"));
    }
}
