import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import onewrite.OneWrite;

/**
 * Commits with the package, and is killed; or reads back.
 *
 * <pre>
 *   java -cp ... Commit DATABASE write    ends by SIGKILL
 *   java -cp ... Commit DATABASE read     ends with 0 if each commit is there
 * </pre>
 *
 * scripts/release resolves the package with Maven, compiles this and runs it.
 */
public class Commit {
    private static final int ROWS = 50;

    public static void main(String[] arguments) throws Exception {
        try (Connection db = OneWrite.connect(arguments[0])) {
            OneWrite.check(db, "onewrite", "FULL");
            if (arguments[1].equals("write")) {
                write(db);
            }
            expect(db, "SELECT count(*) FROM t WHERE x = 'a row'", String.valueOf(ROWS));
            expect(db, "PRAGMA integrity_check", "ok");
        }
    }

    private static void write(Connection db) throws Exception {
        try (Statement statement = db.createStatement()) {
            statement.execute("CREATE TABLE t(x)");
            for (int row = 0; row < ROWS; row++) {
                statement.execute("INSERT INTO t VALUES('a row')");
            }
        }
        // Java cannot kill itself.
        new ProcessBuilder("sh", "-c", "kill -9 $PPID").start().waitFor();
    }

    private static void expect(Connection db, String sql, String expected) throws SQLException {
        try (Statement statement = db.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            String found = rows.getString(1);
            if (!expected.equals(found)) {
                throw new AssertionError(sql + " answers " + found + ", not " + expected);
            }
        }
    }
}
