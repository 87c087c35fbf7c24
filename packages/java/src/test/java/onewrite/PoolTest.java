package onewrite;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** HikariCP, which most frameworks take. */
class PoolTest extends Place {
    private HikariDataSource pool(HikariConfig config) {
        config.setMaximumPoolSize(3);
        return closing(new HikariDataSource(config));
    }

    @Test
    void aDataSourceInAPool() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setDataSource(OneWrite.dataSource(path));
        assertThreadsCommit(pool(config));
    }

    @Test
    void theUrlInAPool() throws Exception {
        OneWrite.load();
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(OneWrite.url(path));
        // Another statement at each connect does no harm.
        config.setConnectionInitSql("PRAGMA foreign_keys=ON");
        assertThreadsCommit(pool(config));
    }

    @Test
    void aStatementAtEachConnectThatLosesCommitsIsFound() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setDataSource(OneWrite.dataSource(path));
        config.setConnectionInitSql("PRAGMA synchronous=NORMAL");
        try (Connection db = pool(config).getConnection()) {
            fails(() -> OneWrite.check(db), "synchronous is NORMAL, not FULL");
        }
    }

    private void assertThreadsCommit(HikariDataSource pool) throws Exception {
        List<Callable<Void>> writers = new ArrayList<>();
        for (int writer = 0; writer < 60; writer++) {
            writers.add(() -> {
                try (Connection db = pool.getConnection()) {
                    commitARow(db);
                    OneWrite.check(db);
                }
                return null;
            });
        }
        ExecutorService threads = Executors.newFixedThreadPool(6);
        try {
            for (Future<Void> writer : threads.invokeAll(writers)) {
                writer.get();
            }
        } finally {
            threads.shutdownNow();
        }
        assertRows(60, connect());
    }
}
