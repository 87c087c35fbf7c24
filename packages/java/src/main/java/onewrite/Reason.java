package onewrite;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;

/** Why SQLite cannot open or write a database: its own words tell neither the place nor the way out. */
final class Reason {
    private static final Pattern ABOUT_FILES = Pattern.compile("unable to open|read-?only", Pattern.CASE_INSENSITIVE);

    /** SQLite's words before those of the extension. */
    private static final String FOUND = "automatic extension loading failed: ";

    private Reason() {}

    /** An error's text without SQLite's words for how it was found. */
    static String plain(String said) {
        return said == null ? "" : said.replace(FOUND, "");
    }

    /** Of a path, after an error. Empty where the files tell nothing. */
    static String andWayOut(String name, String said) {
        if (said == null || !ABOUT_FILES.matcher(ownWords(said)).find()) {
            return "";
        }
        Path path = Path.of(name).toAbsolutePath().normalize();
        Path directory = path.getParent();
        if (directory != null && !Files.isDirectory(directory)) {
            return ": there is no directory " + directory + ": make it first";
        }
        if (Files.isDirectory(path)) {
            return ": " + path + " is a directory: name a file in it";
        }
        if (Files.exists(path) && !(Files.isReadable(path) && Files.isWritable(path))) {
            return ": this user may not read and write " + path + ": change its owner or mode";
        }
        if (directory != null && !(Files.isWritable(directory) && Files.isExecutable(directory))) {
            return ": this user may make no files in " + directory
                    + ", where the log lies, too: change its owner or mode";
        }
        return "";
    }

    /** The driver writes "Unable to open" before the extension's words, which have the reason already. */
    private static String ownWords(String said) {
        int at = said.indexOf(FOUND);
        return at < 0 ? said : said.substring(at + FOUND.length());
    }
}
