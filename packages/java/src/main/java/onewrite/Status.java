package onewrite;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.regex.Pattern;

/** Checks {@code PRAGMA onewrite_status} of a connection. SQLite itself reads the JSON. */
final class Status {
    /** The mode of a database that remembers none. */
    static final String USUAL = OneWrite.MODES.get(0);

    private static final String FIELDS = "SELECT s ->> '$.mode', s ->> '$.kept_out_of.why', s ->> '$.poisoned', "
            + "s ->> '$.sync', s ->> '$.group_synch', s ->> '$.kept_out_of.mode', s ->> '$.synchronous' "
            + "FROM (SELECT ? AS s)";
    /** The name of a file that was meant as a URI. */
    private static final Pattern LITERAL = Pattern.compile("(.*)\\?(.*&)?(vfs|journal_mode|onewrite_\\w+)=.*");

    private final String mode;
    private final String keptOut;
    private final String poisoned;
    private final String sync;
    private final String groupSynch;
    private final String keptOutMode;
    /** The level that holds: onewrite_synchronous may raise the one of the pragma. */
    private final String synchronous;

    private Status(ResultSet fields) throws SQLException {
        mode = fields.getString(1);
        keptOut = fields.getString(2);
        poisoned = fields.getString(3);
        sync = fields.getString(4);
        groupSynch = fields.getString(5);
        keptOutMode = fields.getString(6);
        synchronous = fields.getString(7);
    }

    /** The mode of onewrite that the database remembers, and the usual one if it remembers none. */
    static String remembered(Connection connection) throws SQLException {
        Driver.value(connection, "PRAGMA journal_mode"); // opens the file
        String answer = Driver.value(connection, "PRAGMA onewrite_status");
        if (answer == null) {
            return USUAL; // the check says why
        }
        Status status = read(connection, answer);
        return status.mode != null ? status.mode : status.keptOutMode();
    }

    private String keptOutMode() {
        return keptOutMode != null ? keptOutMode : USUAL;
    }

    /** If {@code mode} is null, any mode of onewrite will do. */
    static String checked(Connection connection, String mode, Synchronous level) throws SQLException {
        String answer = Driver.value(connection, "PRAGMA onewrite_status");
        if (answer == null) {
            throw new OneWriteException("the connection does not use onewrite: " + whyNot(connection));
        }
        Status status = read(connection, answer);
        status.checkMode(connection, mode);
        status.checkLevel(level);
        return answer;
    }

    private static Status read(Connection connection, String answer) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(FIELDS)) {
            statement.setString(1, answer);
            try (ResultSet fields = statement.executeQuery()) {
                fields.next();
                return new Status(fields);
            }
        }
    }

    private static String whyNot(Connection connection) throws SQLException {
        if (!Platform.isSupported()) {
            return Platform.ONLY_LINUX;
        }
        String file = Driver.value(connection, "SELECT file FROM pragma_database_list WHERE name = 'main'");
        if (file != null && isMeantAsUri(file)) {
            return "the URL has no \"file:\", so SQLite opened a file that is named " + file
                    + "; use jdbc:sqlite:file:" + file + ", and delete that file";
        }
        return "SQLite opened it with another VFS; use OneWrite.connect, or OneWrite.load and OneWrite.url";
    }

    static boolean isMeantAsUri(String name) {
        return LITERAL.matcher(name).matches();
    }

    private void checkMode(Connection connection, String wanted) throws SQLException {
        if (keptOut != null) {
            String named = wanted != null ? wanted : keptOutMode();
            throw new OneWriteException("the database is not in " + named + " mode: " + keptOut);
        }
        if (mode == null || wanted != null && !wanted.equals(mode)) {
            String found = mode != null ? mode : Driver.value(connection, "PRAGMA journal_mode");
            String named = wanted != null ? wanted : "one of onewrite";
            throw new OneWriteException("the database is in " + found + " mode, not in " + named
                    + ": run PRAGMA journal_mode=" + (wanted != null ? wanted : USUAL) + " on it");
        }
        if (poisoned != null) {
            throw new OneWriteException("the log cannot be used any more: " + poisoned);
        }
    }

    private void checkLevel(Synchronous wanted) throws OneWriteException {
        Synchronous found = Synchronous.of(synchronous);
        if (found.compareTo(wanted) < 0) {
            throw new OneWriteException("synchronous is " + found + ", not " + wanted
                    + ": run PRAGMA synchronous=" + wanted + " on each connection");
        }
        if (wanted.compareTo(Synchronous.FULL) < 0) {
            return;
        }
        if ("normal".equals(sync)) {
            throw weak("onewrite_sync=normal", wanted);
        }
        if (groupSynch != null) {
            throw weak("onewrite_group_synch=" + groupSynch, wanted);
        }
    }

    private static OneWriteException weak(String setting, Synchronous wanted) {
        return new OneWriteException(
                setting + " lets a power cut lose commits: it does not go with synchronous=" + wanted);
    }
}
