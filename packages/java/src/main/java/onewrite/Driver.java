package onewrite;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/** Opens connections of sqlite-jdbc, and runs statements. */
final class Driver {
    private static final int BUSY = 5; // SQLITE_BUSY

    private Driver() {}

    /** Opens without DriverManager, which finds no driver that a web application brought with it. */
    static Connection open(String url, Properties properties) throws SQLException {
        try {
            return new org.sqlite.JDBC().connect(url, properties);
        } catch (NoClassDefFoundError error) {
            throw new OneWriteException(
                    "there is no sqlite-jdbc (" + error.getMessage() + "): add org.xerial:sqlite-jdbc to the class path",
                    error);
        }
    }

    /** The first value of the first row, or null if there is none. */
    static String value(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            // `executeQuery` would fail where SQLite does not know the pragma.
            if (!statement.execute(sql)) {
                return null;
            }
            try (ResultSet rows = statement.getResultSet()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    /** The same, with parameters. */
    static String value(Connection connection, String sql, String... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int at = 0; at < parameters.length; at++) {
                statement.setString(at + 1, parameters[at]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    static boolean isBusy(SQLException error) {
        return (error.getErrorCode() & 0xFF) == BUSY;
    }
}
