package onewrite;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;

/**
 * A database to open: where, in which mode, how durably, and with which other properties of the driver.
 *
 * <p>The driver would run {@code journal_mode} and {@code synchronous} itself, from its properties and from
 * the URL, and believe the answer. So they are kept from it, and run here. A property counts more than a
 * parameter of the URL, as in the driver.
 */
final class Request {
    private static final long RETRY_MILLIS = 20;
    private static final String MODE = "journal_mode";
    private static final String LEVEL = "synchronous";
    private static final String VFS = "vfs";
    private static final String UPGRADE = "onewrite_upgrade_wal";
    private static final String UPGRADE_VARIABLE = "ONEWRITE_UPGRADE_WAL";

    private final Address address;
    private final String mode; // null for the one that the database remembers
    private final Synchronous level;
    private final Properties properties;

    private Request(Address address, Properties properties) {
        this.address = address;
        this.properties = properties;
        properties.stringPropertyNames().forEach(Names::checkProperty);
        address.parameters().keySet().forEach(Names::checkParameter);
        mode = modeOrNull(word(MODE, null));
        level = Synchronous.of(word(LEVEL, "FULL"));
        String vfs = address.parameters().getOrDefault(VFS, "onewrite");
        if (!vfs.equals("onewrite")) {
            throw new IllegalArgumentException(address + " names vfs=" + vfs + ", and onewrite is asked for");
        }
        for (String own : new String[] {MODE, LEVEL, VFS}) {
            address.parameters().remove(own);
            properties.remove(own);
        }
    }

    static Request of(String path, Properties properties) throws OneWriteException {
        if (path == null || properties == null) {
            throw new IllegalArgumentException("the " + (path == null ? "path is" : "properties are") + " null");
        }
        Properties copy = new Properties();
        for (String name : properties.stringPropertyNames()) {
            copy.setProperty(name, properties.getProperty(name));
        }
        return new Request(Address.of(path), copy);
    }

    private String word(String name, String byDefault) {
        return properties.getProperty(name, address.parameters().getOrDefault(name, byDefault));
    }

    static String modeOrNull(String word) {
        if (word == null) {
            return null;
        }
        String mode = word.toLowerCase(Locale.ROOT);
        if (!OneWrite.MODES.contains(mode)) {
            throw new IllegalArgumentException(
                    "unknown mode '" + word + "': it is one of " + String.join(", ", OneWrite.MODES));
        }
        return mode;
    }

    /** The URL with which the driver does all but the check. */
    String url() {
        Map<String, String> parameters = parameters();
        parameters.put(MODE, named());
        parameters.put(LEVEL, level.name());
        return address.url(parameters);
    }

    private String named() {
        return mode != null ? mode : Status.USUAL;
    }

    /** A program that asks for WAL keeps the mode, unless the environment says what becomes of it. */
    private Map<String, String> parameters() {
        Map<String, String> parameters = new HashMap<>(Map.of(VFS, "onewrite"));
        if (System.getenv(UPGRADE_VARIABLE) == null) {
            parameters.put(UPGRADE, named());
        }
        return parameters;
    }

    Connection open() throws SQLException {
        long start = System.nanoTime();
        try {
            while (true) {
                Connection connection = Driver.open(address.url(parameters()), properties);
                try {
                    enter(connection);
                    return connection;
                } catch (SQLException | RuntimeException | Error error) {
                    boolean again = error instanceof SQLException && Driver.isBusy((SQLException) error)
                            && System.nanoTime() - start < patience(connection);
                    // An open connection is in the way of others that wait, too. So each try opens another.
                    connection.close();
                    if (!again) {
                        throw error;
                    }
                }
                pause();
            }
        } catch (SQLException error) {
            String said = error.getMessage();
            String text = Reason.plain(said) + Reason.andWayOut(address.file(), said);
            throw new OneWriteException(address + ": " + text, error);
        }
    }

    /** Stock WAL, on systems other than Linux. */
    Connection openStock() throws SQLException {
        Properties stock = new Properties();
        stock.putAll(properties);
        stock.setProperty(MODE, "WAL");
        stock.setProperty(LEVEL, level.name());
        return Driver.open(address.url(Map.of()), stock);
    }

    private void enter(Connection connection) throws SQLException {
        String wanted = mode != null ? mode : Status.remembered(connection);
        Driver.value(connection, "PRAGMA journal_mode=" + wanted);
        Driver.value(connection, "PRAGMA synchronous=" + level);
        Status.checked(connection, mode, level);
    }

    /** How long a connection that is in the way is waited for, in nanoseconds. */
    private static long patience(Connection connection) throws SQLException {
        return Long.parseLong(Driver.value(connection, "PRAGMA busy_timeout")) * 1_000_000;
    }

    private void pause() throws OneWriteException {
        try {
            Thread.sleep(RETRY_MILLIS + ThreadLocalRandom.current().nextLong(RETRY_MILLIS));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new OneWriteException("interrupted while another connection was in the way", interrupted);
        }
    }
}
