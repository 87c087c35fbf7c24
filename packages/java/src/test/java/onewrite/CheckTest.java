package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.sql.Connection;
import java.sql.DriverManager;
import org.junit.jupiter.api.Test;

class CheckTest extends Place {
    @Test
    void anotherVfs() throws Exception {
        Connection stock = stock();
        // SQLite does not say that it has no such mode.
        assertEquals("delete", one(stock, "PRAGMA journal_mode=onewrite"));
        fails(() -> OneWrite.check(stock), "does not use onewrite", "another VFS", "OneWrite.connect");
        Connection memory = closing(DriverManager.getConnection("jdbc:sqlite::memory:"));
        fails(() -> OneWrite.check(memory), "does not use onewrite");
    }

    @Test
    void aUrlWithoutFileIsNoticed() throws Exception {
        OneWrite.load();
        String literal = path + "?vfs=onewrite";
        Connection db = closing(DriverManager.getConnection("jdbc:sqlite:" + literal));
        run(db, "CREATE TABLE t(x)");
        fails(() -> OneWrite.check(db), "no \"file:\"", literal, "use jdbc:sqlite:file:" + literal);
    }

    @Test
    void anotherMode() throws Exception {
        Connection db = connect("journal_mode=waldio");
        fails(() -> OneWrite.check(db, "onewrite", "FULL"), "is in waldio mode, not in onewrite");
        fails(() -> OneWrite.check(db, "onewrite"), "is in waldio mode, not in onewrite");
        assertEquals("waldio", field(db, OneWrite.check(db, "waldio"), "mode"));
    }

    @Test
    void aModeOfSqlite() throws Exception {
        Connection db = connect();
        assertEquals("delete", one(db, "PRAGMA journal_mode=delete"));
        fails(() -> OneWrite.check(db), "is in delete mode, not in one of onewrite");
    }

    @Test
    void aLowerLevel() throws Exception {
        Connection db = connect("synchronous=NORMAL");
        fails(() -> OneWrite.check(db), "synchronous is NORMAL, not FULL");
        OneWrite.check(db, "onewrite", "normal");
    }

    @Test
    void settingsThatLoseCommits() throws Exception {
        Connection db = connect();
        run(db, "PRAGMA onewrite_sync=normal");
        fails(() -> OneWrite.check(db), "onewrite_sync=normal", "power cut");
        Connection groups = connectTo(in("groups"), "journal_mode=waldio");
        run(groups, "PRAGMA onewrite_group_synch='4,2'");
        fails(() -> OneWrite.check(groups, "waldio", "FULL"), "onewrite_group_synch=4,2", "power cut");
    }

    @Test
    void theReasonOfAModeThatIsKeptOut() throws Exception {
        Connection first = connect();
        commitARow(first);
        first.close();
        assertRows(1, stock());
        Connection db = closing(DriverManager.getConnection(
                "jdbc:sqlite:file:" + path + "?vfs=onewrite", properties("busy_timeout=1")));
        assertRows(1, db);
        fails(() -> OneWrite.check(db), "is not in onewrite mode", "stock SQLite");
        fails(() -> connect("busy_timeout=1"), "cannot change into onewrite mode", "stock SQLite");
    }

    @Test
    void aProgramThatAsksForWalKeepsTheModeUnlessTheEnvironmentSaysOtherwise() throws Exception {
        assertEquals("[wal, onewrite]", start("wal", path).printed().toString());
        Child child = start("wal", path).variable("ONEWRITE_UPGRADE_WAL", "0");
        assertEquals(
                "[wal, the database is in wal mode, not in one of onewrite: run PRAGMA journal_mode=onewrite on it]",
                child.printed().toString());
    }

    @Test
    void aProgramThatAsksForWalKeepsTheModeThatTheDatabaseRemembers() throws Exception {
        for (String mode : OneWrite.MODES) {
            connectTo(in(mode), "journal_mode=" + mode).close();
            assertEquals("[wal, " + mode + "]", start("wal", in(mode)).printed().toString());
            Connection db = connectTo(in(mode));
            assertEquals(mode, field(db, OneWrite.check(db), "mode"));
        }
    }
}
