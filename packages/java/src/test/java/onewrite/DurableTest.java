package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import org.junit.jupiter.api.Test;

class DurableTest extends Place {
    private static final String RIGHT_ROWS =
            "SELECT count(*) FROM t WHERE x = (SELECT count(*) FROM t AS u WHERE u.rowid < t.rowid)";

    @Test
    void aKillLosesNoCommitAndStockSqliteIsRefused() throws Exception {
        Child child = start("write", path).run();
        int acknowledged = 0;
        while (acknowledged < 50) {
            assertEquals(String.valueOf(acknowledged), child.line(), child::errors);
            acknowledged++;
        }
        List<String> more = child.kill();
        // The last line may be cut short.
        acknowledged += Math.max(0, more.size() - 1);
        Connection stock = stock();
        SQLException refusal = assertThrows(SQLException.class, () -> one(stock, "SELECT count(*) FROM t"));
        assertTrue(refusal.getMessage().contains("file is not a database"), refusal.getMessage());
        stock.close();
        assertReadBack(acknowledged);
    }

    private void assertReadBack(int acknowledged) throws Exception {
        Connection db = connect();
        int rows = Integer.parseInt(one(db, "SELECT count(*) FROM t"));
        assertTrue(rows >= acknowledged, rows + " of " + acknowledged);
        assertEquals(String.valueOf(rows), one(db, RIGHT_ROWS));
        assertEquals("ok", one(db, "PRAGMA integrity_check"));
        assertEquals(List.of(String.valueOf(rows)), start("count", path).printed());
    }
}
