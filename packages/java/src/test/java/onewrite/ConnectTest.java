package onewrite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.DriverPropertyInfo;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.sqlite.SQLiteConfig;

/** connect, dataSource and url. */
class ConnectTest extends Place {
    @Test
    void oneLineOpensInTheModeAtFull() throws Exception {
        Connection db = connect();
        commitARow(db);
        String status = OneWrite.check(db);
        assertEquals("onewrite", field(db, status, "mode"));
        assertEquals("1", field(db, status, "guarded"));
        assertTrue(Integer.parseInt(field(db, status, "writes")) > 0, status);
        assertEquals("2", one(db, "PRAGMA synchronous"));
    }

    @Test
    void everyModeAndLevel() throws Exception {
        for (String mode : OneWrite.MODES) {
            for (String level : List.of("OFF", "normal", "FULL", "EXTRA")) {
                Connection db = connectTo(
                        in(mode + level), "journal_mode=" + mode.toUpperCase(), "synchronous=" + level);
                commitARow(db);
                assertEquals(mode, field(db, OneWrite.check(db, mode, level), "mode"));
            }
        }
    }

    @Test
    void aDatabaseKeepsTheModeThatItRemembers() throws Exception {
        for (String mode : OneWrite.MODES) {
            connectTo(in(mode), "journal_mode=" + mode).close();
            try (Connection db = OneWrite.connect(in(mode))) {
                assertEquals(mode, field(db, OneWrite.check(db), "mode"));
                commitARow(db);
            }
            try (Connection db = OneWrite.dataSource(in(mode)).getConnection()) {
                OneWrite.check(db, mode, "FULL");
            }
            OneWrite.check(connectTo(in(mode), "journal_mode=onewrite"), "onewrite", "FULL");
        }
    }

    @Test
    void aStockDatabaseIsTakenOverAndIsStockAgainAfterTheLastClose() throws Exception {
        Connection stock = stock();
        run(stock, "CREATE TABLE t(x)");
        stock.close();
        Connection db = connect();
        commitARow(db);
        db.close();
        stock = stock();
        assertRows(1, stock);
        stock.close();
        assertRows(1, connect());
    }

    @Test
    void namesOfAllKinds() throws Exception {
        Files.createDirectory(directory.resolve("a b"));
        for (String name : List.of("a b/c?d#e%20f&g=h.db", "\u00fcber.db", "file:x.db", " x+y ")) {
            for (String form : List.of(in(name), "/" + in(name))) {
                commitARow(connectTo(form));
            }
            assertRows(2, connectTo(in(name)));
        }
        try (Stream<Path> files = Files.list(directory)) {
            assertEquals(3, files.filter(file -> file.toString().matches(".*( x\\+y |/file:x.db|ber.db)")).count());
        }
        assertTrue(Files.exists(directory.resolve("a b/c?d#e%20f&g=h.db")));
    }

    @Test
    void aUriKeepsItsParametersAndPropertiesCountMore() throws Exception {
        String uri = "file:" + path + "?onewrite_compression=zstd&journal_mode=swal&cache=private";
        for (String form : List.of(uri, "jdbc:sqlite:" + uri)) {
            Connection db = connectTo(form);
            commitARow(db);
            assertEquals("zstd", field(db, OneWrite.check(db, "swal", "FULL"), "compression"));
            db.close();
        }
        Connection db = connectTo(uri + "&busy_timeout=7", "journal_mode=onewrite", "foreign_keys=true");
        OneWrite.check(db);
        assertEquals("1", one(db, "PRAGMA foreign_keys"));
        assertEquals("7", one(db, "PRAGMA busy_timeout"));
        assertRows(2, connectTo("file:" + path + "?mode=ro"));
        fails(() -> connectTo("file:" + path + "?onewrite_synk=full"), path, "onewrite_synk");
    }

    @Test
    void wrongWordsAreLoud() throws Exception {
        refuses(() -> connect("journal_mode=wladio"), "unknown mode 'wladio'", "onewrite, waldio, swal, direct");
        refuses(() -> connect("journal_mode=WAL"), "unknown mode 'WAL'");
        refuses(() -> connect("synchronous=FUL"), "unknown synchronous 'FUL'", "OFF, NORMAL, FULL, EXTRA");
        refuses(() -> connectTo("file:" + path + "?vfs=unix"), "vfs=unix");
        refuses(() -> OneWrite.check(null, "x", "FULL"), "unknown mode 'x'");
        try (Stream<Path> files = Files.list(directory)) {
            assertEquals(0, files.count());
        }
    }

    @Test
    void aNameThatIsCloseToOursIsRefused() throws Exception {
        refuses(() -> connect("mode=waldio", "sync=EXTRA"), "unknown property", "onewrite takes");
        refuses(() -> connect("mode=waldio"), "unknown property 'mode': onewrite takes journal_mode");
        refuses(() -> connect("sync=EXTRA"), "unknown property 'sync': onewrite takes synchronous");
        for (String name : List.of("jurnal_mode", "journalMode", "Journal_Mode", "journal-mode")) {
            refuses(() -> connect(name + "=waldio"), "'" + name + "'", "takes journal_mode");
            refuses(() -> connectTo("file:" + path + "?" + name + "=waldio"), "parameter '" + name + "'");
        }
        refuses(() -> connect("synchronus=EXTRA"), "takes synchronous");
        refuses(() -> connect("busyTimeout=7"), "takes busy_timeout");
        refuses(() -> connect("onewrite_sync=full"), "onewrite_sync is no property", "file:app.db?onewrite_sync=");
        refuses(() -> OneWrite.connect(null), "the path is null");
        refuses(() -> OneWrite.connect(path, null), "the properties are null");
        refuses(() -> OneWrite.dataSource(null), "null");
        assertFalse(Files.exists(Path.of(path)));
    }

    @Test
    void thePropertiesOfTheDriverAreItsOwn() throws Exception {
        for (DriverPropertyInfo known : new org.sqlite.JDBC().getPropertyInfo("jdbc:sqlite:", new Properties())) {
            Names.checkProperty(known.name);
        }
        for (SQLiteConfig.Pragma known : SQLiteConfig.Pragma.values()) {
            Names.checkProperty(known.pragmaName);
        }
        Connection db = connect("cache_size=77", "limit_attached=3", "jdbc.explicit_readonly=false");
        assertEquals("77", one(db, "PRAGMA cache_size"));
    }

    @Test
    void aMissingLogIsNamedWithItsReasonAlone() throws Exception {
        commitARow(connect());
        Path copy = Files.copy(Path.of(path), directory.resolve("copy.db"));
        OneWriteException error = assertThrows(OneWriteException.class, () -> connectTo(copy.toString()));
        String said = error.getMessage();
        assertTrue(said.startsWith("file:" + copy + ": ") && said.contains("it is missing: put it back"), said);
        assertFalse(said.contains("automatic extension"), said);
        // A directory would be another reason.
        assertEquals("", Reason.andWayOut(directory.toString(), error.getCause().getMessage()));
    }

    @Test
    void parametersWithoutFileAreNoticed() {
        for (String name : List.of(
                path + "?vfs=onewrite", path + "?a=b&onewrite_sync=full", "jdbc:sqlite:" + path + "?cache=shared")) {
            refuses(() -> connectTo(name), name, "no \"file:\"", "use file:" + path + "?");
        }
    }

    @Test
    void memoryHasNoJournal() {
        for (String name : List.of(
                ":memory:", "", "jdbc:sqlite:", "file::memory:", "file:", "file:x?mode=memory&cache=shared")) {
            fails(() -> connectTo(name), "in memory");
        }
    }

    @Test
    void aPlaceThatNoDatabaseCanHaveIsNamed() {
        fails(() -> connectTo(in("no where/app.db")), "unable to open",
                ": there is no directory " + in("no where") + ": make it first");
        fails(() -> connectTo(in("")), "unable to open", " is a directory: name a file in it");
    }

    @Test
    void aStockConnectionInTheWayIsNamed() throws Exception {
        Connection stock = stock();
        run(stock, "CREATE TABLE t(x)", "BEGIN IMMEDIATE");
        fails(() -> connect("busy_timeout=100"), path, "cannot change into onewrite mode", "another connection");
        run(stock, "ROLLBACK", "PRAGMA journal_mode=WAL");
        assertRows(0, stock);
        fails(() -> connect("busy_timeout=100"), path, "cannot change into onewrite mode", "another connection");
        stock.close();
        OneWrite.check(connect());
    }

    @Test
    void aConnectionInTheWayIsWaitedFor() throws Exception {
        Connection stock = stock();
        run(stock, "PRAGMA journal_mode=WAL", "CREATE TABLE t(x)");
        ExecutorService thread = closing(new Threads(1)).pool;
        Future<Connection> db = thread.submit(() -> connect("busy_timeout=20000"));
        Thread.sleep(300);
        assertFalse(db.isDone());
        stock.close();
        OneWrite.check(db.get());
    }

    @Test
    void threadsThatAllConnectFirst() throws Exception {
        List<Callable<Void>> writers = new ArrayList<>();
        for (int writer = 0; writer < 6; writer++) {
            writers.add(() -> {
                try (Connection db = OneWrite.connect(path, properties("busy_timeout=30000"))) {
                    for (int row = 0; row < 20; row++) {
                        commitARow(db);
                    }
                    OneWrite.check(db);
                }
                return null;
            });
        }
        for (Future<Void> writer : closing(new Threads(6)).pool.invokeAll(writers)) {
            writer.get();
        }
        assertRows(120, connect());
        assertEquals("ok", one(connect(), "PRAGMA integrity_check"));
    }

    @Test
    void transactionsOfJdbc() throws Exception {
        Connection db = connect();
        db.setAutoCommit(false);
        run(db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)");
        db.commit();
        run(db, "INSERT INTO t VALUES(2)");
        OneWrite.check(db);
        db.rollback();
        assertRows(1, db);
    }

    @Test
    void theUrlOpensInTheModeAtFull() throws Exception {
        OneWrite.load();
        String url = OneWrite.url(path);
        assertEquals(
                "jdbc:sqlite:file:" + path + "?vfs=onewrite&journal_mode=onewrite&synchronous=FULL"
                        + "&onewrite_upgrade_wal=onewrite",
                url);
        OneWrite.check(closing(DriverManager.getConnection(url)));
    }

    @Test
    void aDataSourceConnects() throws Exception {
        Connection db = closing(OneWrite.dataSource(path, properties("journal_mode=direct")).getConnection());
        OneWrite.check(db, "direct", "FULL");
        assertThrows(SQLException.class, () -> OneWrite.dataSource(path).unwrap(String.class));
    }

    private static final class Threads implements AutoCloseable {
        final ExecutorService pool;

        Threads(int count) {
            pool = Executors.newFixedThreadPool(count);
        }

        @Override
        public void close() {
            pool.shutdownNow();
        }
    }
}
