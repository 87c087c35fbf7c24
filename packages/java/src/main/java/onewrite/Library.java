package onewrite;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * Finds the loadable extension.
 *
 * <p>The copy of the jar's library lies in a directory of its own that only this user can enter. So no
 * other user can replace it between the copy and the load.
 */
final class Library {
    /** A system property and a variable. The command {@code onewrite} reads the same variable. */
    static final String NAME = "ONEWRITE_EXTENSION_LIBRARY";

    private static final String FILE = "libonewrite.so";

    private static Path copy;

    private Library() {}

    /** The path of the library. A copy stays until this Java machine exits. */
    static synchronized Path path() throws OneWriteException {
        Path named = named();
        if (named != null) {
            return named;
        }
        if (copy == null || !Files.exists(copy)) {
            copy = extract();
            // Java deletes in reverse order.
            copy.getParent().toFile().deleteOnExit();
            copy.toFile().deleteOnExit();
        }
        return copy;
    }

    /** The library that the user named, or null. */
    static Path named() throws OneWriteException {
        String name = System.getProperty(NAME, System.getenv(NAME));
        if (name == null || name.isEmpty()) {
            return null;
        }
        Path path = Path.of(name).toAbsolutePath();
        if (!Files.isRegularFile(path)) {
            throw new OneWriteException(NAME + ": there is no file " + path);
        }
        return path;
    }

    /** A new copy of the jar's library. The caller sees that it is deleted. */
    static Path extract() throws OneWriteException {
        String resource = "/onewrite/" + Platform.folder() + "/" + FILE;
        try (InputStream library = Library.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new OneWriteException("this package has no extension (" + resource
                        + "): use the jar for this machine, or name the library in " + NAME);
            }
            return copied(library);
        } catch (IOException error) {
            throw new OneWriteException("cannot copy " + resource + " to " + System.getProperty("java.io.tmpdir")
                    + " (" + error + "): set java.io.tmpdir, or name the library in " + NAME, error);
        }
    }

    private static Path copied(InputStream library) throws IOException {
        Path directory = Files.createTempDirectory("onewrite-",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        Path path = directory.resolve(FILE);
        try {
            Files.copy(library, path);
            return path;
        } catch (IOException error) {
            delete(path);
            throw error;
        }
    }

    /** Deletes a copy and its directory, both made by this process. */
    static void delete(Path path) {
        for (Path each : new Path[] {path, path.getParent()}) {
            try {
                Files.deleteIfExists(each);
            } catch (IOException error) {
                each.toFile().deleteOnExit();
            }
        }
    }
}
