package onewrite;

import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Properties;
import javax.sql.DataSource;

/**
 * Durable SQLite commits in one device write, for {@code org.xerial:sqlite-jdbc}.
 *
 * <pre>{@code Connection db = OneWrite.connect("app.db");}</pre>
 *
 * The database is then in journal mode {@code onewrite} at {@code synchronous=FULL}, or {@code connect}
 * has thrown. A database that remembers another of {@link #MODES} stays in that one. All methods may be
 * called from any thread.
 */
public final class OneWrite {
    /** The journal modes of onewrite. */
    public static final List<String> MODES = List.of("onewrite", "waldio", "swal", "direct");

    private OneWrite() {}

    /** Opens a database at {@code synchronous=FULL}: see {@link #connect(String, Properties)}. */
    public static Connection connect(String path) throws SQLException {
        return connect(path, new Properties());
    }

    /**
     * Opens a database like the driver, in a journal mode of onewrite.
     *
     * <p>The path may be a URI ({@code file:...}) or a URL of the driver ({@code jdbc:sqlite:file:...}), with
     * settings of onewrite as its parameters. The properties are those of the driver. Two of them have other
     * defaults. {@code synchronous} is {@code FULL}. {@code journal_mode} is the mode that the database
     * remembers, and {@code onewrite} if it remembers none of {@link #MODES}. Another connection that is in
     * the way is waited for as long as {@code busy_timeout} says.
     *
     * <p>On systems other than Linux this logs a warning, and opens in stock WAL.
     *
     * @throws OneWriteException with the reason if the database is not in the mode at that level
     * @throws IllegalArgumentException for an unknown word, or for a name close to a right one
     */
    public static Connection connect(String path, Properties properties) throws SQLException {
        Request request = Request.of(path, properties);
        return load() ? request.open() : request.openStock();
    }

    /** A data source whose connections are those of {@link #connect(String)}, for pools and frameworks. */
    public static DataSource dataSource(String path) {
        return dataSource(path, new Properties());
    }

    /** A data source whose connections are those of {@link #connect(String, Properties)}. */
    public static DataSource dataSource(String path, Properties properties) {
        return new OneWriteDataSource(path, properties);
    }

    /**
     * The URL that opens a database in mode {@code onewrite} at FULL, for code that takes nothing else.
     * It changes a database that is in another mode. Call {@link #load()} first, and {@link
     * #check(Connection)} afterwards.
     */
    public static String url(String path) throws SQLException {
        return Request.of(path, new Properties()).url();
    }

    /** Checks for any mode of onewrite at FULL: see {@link #check(Connection, String, String)}. */
    public static String check(Connection connection) throws SQLException {
        return check(connection, null, "FULL");
    }

    /** Checks for a mode at FULL: see {@link #check(Connection, String, String)}. */
    public static String check(Connection connection, String mode) throws SQLException {
        return check(connection, mode, "FULL");
    }

    /**
     * Checks that the connection's database is in the mode, and that its commits are at least as durable as
     * {@code synchronous} says.
     *
     * @param mode one of {@link #MODES}, or null for any of them
     * @return {@code PRAGMA onewrite_status}, a JSON document
     * @throws OneWriteException with the reason otherwise
     * @throws IllegalArgumentException for an unknown word
     */
    public static String check(Connection connection, String mode, String synchronous) throws SQLException {
        return Status.checked(connection, Request.modeOrNull(mode), Synchronous.of(synchronous));
    }

    /**
     * Makes the VFS {@code onewrite} available to every connection that the driver opens later.
     *
     * @return whether it is available: false, with a warning in the log, on systems other than Linux
     * @throws OneWriteException if it cannot be loaded
     */
    public static boolean load() throws SQLException {
        return Loader.load();
    }

    /**
     * The path of the loadable extension, for other drivers. It is the library that the system property or
     * the variable {@code ONEWRITE_EXTENSION_LIBRARY} names. Otherwise it is a private copy of the one in
     * the jar, which is deleted when the Java machine exits.
     *
     * @throws OneWriteException if there is none
     */
    public static Path loadablePath() throws SQLException {
        return Library.path();
    }
}
