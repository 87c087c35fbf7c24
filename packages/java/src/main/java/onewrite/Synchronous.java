package onewrite;

import java.util.Locale;

/** The values of {@code PRAGMA synchronous}, by SQLite's numbers. */
enum Synchronous {
    OFF,
    NORMAL,
    FULL,
    EXTRA;

    static Synchronous of(String word) {
        for (Synchronous level : values()) {
            if (level.name().equals(word.toUpperCase(Locale.ROOT))) {
                return level;
            }
        }
        throw new IllegalArgumentException(
                "unknown synchronous '" + word + "': it is one of OFF, NORMAL, FULL, EXTRA");
    }
}
