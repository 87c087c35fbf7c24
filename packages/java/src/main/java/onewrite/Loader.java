package onewrite;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Properties;

/** Loads the extension into the driver's SQLite: once in a process, and it stays. */
final class Loader {
    private static final String ENTRY_POINT = "sqlite3_onewrite_init";

    private Loader() {}

    static synchronized boolean load() throws SQLException {
        if (!Platform.isSupported()) {
            System.getLogger("onewrite")
                    .log(Level.WARNING, Platform.ONLY_LINUX + ": databases are in stock WAL here");
            return false;
        }
        if (!hasVfs()) {
            loadLibrary();
            if (!hasVfs()) {
                throw new OneWriteException("the extension was loaded, but SQLite has no VFS onewrite");
            }
        }
        return true;
    }

    private static boolean hasVfs() throws SQLException {
        try {
            Driver.open("jdbc:sqlite:file::memory:?vfs=onewrite", new Properties()).close();
            return true;
        } catch (SQLException error) {
            if (String.valueOf(error.getMessage()).contains("no such vfs")) {
                return false;
            }
            throw error;
        }
    }

    private static void loadLibrary() throws SQLException {
        Path named = Library.named();
        if (named != null) {
            load(named);
            return;
        }
        Path copy = Library.extract();
        try {
            load(copy);
        } finally {
            Library.delete(copy); // it stays mapped
        }
    }

    private static void load(Path path) throws SQLException {
        check(path);
        Properties properties = new Properties();
        properties.setProperty("enable_load_extension", "true");
        try (Connection loader = Driver.open("jdbc:sqlite::memory:", properties)) {
            Driver.value(loader, "SELECT load_extension(?, ?)", withoutSuffix(path), ENTRY_POINT);
        } catch (SQLException error) {
            String foreign = Elf.otherLibc(path);
            throw new OneWriteException(
                    "cannot load " + path + ": " + (foreign != null ? foreign : error.getMessage()) + ": name another library in " + Library.NAME,
                    error);
        }
    }

    private static void check(Path path) throws OneWriteException {
        try {
            String reason = Elf.whyNot(path);
            if (reason != null) {
                throw new OneWriteException("cannot load " + path + ": " + reason
                        + ": install onewrite again, or name another library in " + Library.NAME);
            }
        } catch (IOException error) {
            throw new OneWriteException("cannot load " + path + ": " + error, error);
        }
    }

    /**
     * SQLite tries the name as it is, then with ".so", and reports the error of the last try. Without
     * ".so" that is the error of the file itself.
     */
    private static String withoutSuffix(Path path) {
        String name = path.toString();
        return name.endsWith(".so") ? name.substring(0, name.length() - ".so".length()) : name;
    }
}
