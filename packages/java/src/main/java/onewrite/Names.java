package onewrite;

import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The driver drops a property or a parameter that it does not know. One that is close to ours is refused. */
final class Names {
    private static final List<String> OURS = List.of("journal_mode", "synchronous", "busy_timeout");
    /** Names of other packages and programs, in small letters and without underscores. */
    private static final Map<String, String> OTHERS =
            Map.of("mode", "journal_mode", "journal", "journal_mode", "sync", "synchronous", "timeout", "busy_timeout");
    private static final int MOST_TYPOS = 2;
    private static final String SETTING = "onewrite_";

    private Names() {}

    static void checkProperty(String name) {
        if (name.startsWith(SETTING)) {
            throw new IllegalArgumentException(
                    name + " is no property: it is a parameter of the URI (file:app.db?" + name + "=...)");
        }
        refuse("property", name);
    }

    /** SQLite's own parameter {@code mode} says how the file is opened. */
    static void checkParameter(String name) {
        if (!name.equals("mode")) {
            refuse("parameter", name);
        }
    }

    private static void refuse(String what, String name) {
        String meant = meant(name);
        if (meant != null && !meant.equals(name)) {
            throw new IllegalArgumentException("unknown " + what + " '" + name + "': onewrite takes " + meant);
        }
    }

    /** The right name for one that is close to it, or null. */
    private static String meant(String name) {
        String plain = plain(name);
        for (String ours : OURS) {
            if (distance(plain, plain(ours)) <= MOST_TYPOS) {
                return ours;
            }
        }
        return OTHERS.get(plain);
    }

    private static String plain(String name) {
        return name.toLowerCase(Locale.ROOT).replaceAll("[_-]", "");
    }

    /** How many letters are to be inserted, deleted or replaced. */
    private static int distance(String left, String right) {
        int[] row = new int[right.length() + 1];
        for (int column = 0; column < row.length; column++) {
            row[column] = column;
        }
        for (int at = 1; at <= left.length(); at++) {
            int diagonal = row[0];
            row[0] = at;
            for (int column = 1; column < row.length; column++) {
                int changed = diagonal + (left.charAt(at - 1) == right.charAt(column - 1) ? 0 : 1);
                diagonal = row[column];
                row[column] = Math.min(changed, Math.min(row[column], row[column - 1]) + 1);
            }
        }
        return row[right.length()];
    }
}
