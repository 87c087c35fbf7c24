package onewrite;

import java.io.PrintWriter;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.util.Properties;
import java.util.logging.Logger;
import javax.sql.DataSource;

/** Connections of {@link OneWrite#connect(String, Properties)}. SQLite has no users, and no log of JDBC. */
final class OneWriteDataSource implements DataSource {
    private final String path;
    private final Properties properties;

    OneWriteDataSource(String path, Properties properties) {
        if (path == null || properties == null) {
            throw new IllegalArgumentException("a data source needs a path and properties, and one is null");
        }
        this.path = path;
        this.properties = (Properties) properties.clone();
    }

    @Override
    public Connection getConnection() throws SQLException {
        return OneWrite.connect(path, properties);
    }

    @Override
    public Connection getConnection(String user, String password) throws SQLException {
        return getConnection();
    }

    @Override
    public PrintWriter getLogWriter() {
        return null;
    }

    @Override
    public void setLogWriter(PrintWriter writer) {}

    @Override
    public int getLoginTimeout() {
        return 0;
    }

    @Override
    public void setLoginTimeout(int seconds) {}

    @Override
    public Logger getParentLogger() throws SQLFeatureNotSupportedException {
        throw new SQLFeatureNotSupportedException("no java.util.logging");
    }

    @Override
    public <T> T unwrap(Class<T> type) throws SQLException {
        if (isWrapperFor(type)) {
            return type.cast(this);
        }
        throw new SQLException("not a " + type.getName());
    }

    @Override
    public boolean isWrapperFor(Class<?> type) {
        return type.isInstance(this);
    }

    @Override
    public String toString() {
        return "onewrite: " + path;
    }
}
