package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;

/** {@code onewrite_synchronous} holds, whatever a program says after {@code connect}. */
class FloorTest extends Place {
    private static Connection lowered(Connection db) throws SQLException {
        run(db, "CREATE TABLE IF NOT EXISTS t(x)", "PRAGMA synchronous=NORMAL");
        return db;
    }

    @Test
    void aProgramThatSaysNormalCommitsAtFull() throws Exception {
        for (String mode : OneWrite.MODES) {
            for (String level : List.of("full", "extra")) {
                String uri = "file:" + in(mode + level) + "?onewrite_synchronous=" + level;
                DataSource source = OneWrite.dataSource(uri, properties("journal_mode=" + mode));
                // Each connection of a pool has it.
                for (int number = 0; number < 2; number++) {
                    Connection db = lowered(closing(source.getConnection()));
                    assertEquals(level, field(db, OneWrite.check(db, mode, level), "synchronous"));
                    assertTrue(durableCalls(db) >= 5, mode + " " + level);
                }
            }
        }
    }

    @Test
    void aPragmaSetsItOnAnOpenConnection() throws Exception {
        Connection db = lowered(connect());
        assertEquals(0, durableCalls(db));
        run(db, "PRAGMA onewrite_synchronous=full");
        OneWrite.check(db);
        assertTrue(durableCalls(db) >= 5);
    }

    @Test
    void theEnvironmentSetsIt() throws Exception {
        Child child = start("lower", path).variable("ONEWRITE_SYNCHRONOUS", "full");
        assertEquals(List.of("full true"), child.printed());
        assertEquals(List.of("normal false"), start("lower", in("other")).printed());
    }
}
