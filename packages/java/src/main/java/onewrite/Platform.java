package onewrite;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;

/** The machine that this Java runs on, by the names of the jar's folders. */
final class Platform {
    static final String ONLY_LINUX = "onewrite runs on Linux only";

    private static final Map<String, String> PROCESSORS =
            Map.of("amd64", "x86_64", "arm", "armv7", "i386", "x86", "i686", "x86");

    private Platform() {}

    static boolean isSupported() {
        return System.getProperty("os.name").startsWith("Linux");
    }

    /** Such as {@code linux-x86_64}, or {@code linux-musl-aarch64}. */
    static String folder() {
        return (usesMusl() ? "linux-musl-" : "linux-") + processor();
    }

    static String processor() {
        String name = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return PROCESSORS.getOrDefault(name, name);
    }

    /** Whether this process has the C library of Alpine, which cannot load a library made for glibc. */
    static boolean usesMusl() {
        try {
            return Files.readString(Path.of("/proc/self/maps")).contains("/ld-musl-");
        } catch (IOException | RuntimeException error) {
            return false;
        }
    }
}
