package onewrite;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * Why a file cannot be the extension of this Java. Linux ends the process at a library that is cut short,
 * and says "No such file or directory" of one for another machine, so the loader asks here first.
 */
final class Elf {
    private static final int HEADER = 64;
    private static final int MAGIC = 0x464C457F;
    private static final int CLASS = 4;
    private static final int MACHINE = 18;
    /** {@code e_machine} of elf(5), by the names of the jar's folders. */
    private static final Map<Integer, String> MACHINES =
            Map.of(3, "x86", 40, "armv7", 62, "x86_64", 183, "aarch64", 243, "riscv64");

    private Elf() {}

    /** The reason, or null for a whole library of this machine. */
    static String whyNot(Path path) throws IOException {
        ByteBuffer header = header(path);
        if (header.limit() < HEADER || header.getInt(0) != MAGIC) {
            return "it is no shared library";
        }
        if (Files.size(path) < sectionsEnd(header)) {
            return "it is cut short";
        }
        String machine = MACHINES.get((int) header.getShort(MACHINE));
        if (machine != null && !machine.equals(Platform.processor())) {
            return "it is for " + machine + ", and this Java is for " + Platform.processor();
        }
        return null;
    }

    /** Why a library that the loader refused needs the other C library, or null. Its name is in the file. */
    static String otherLibc(Path path) {
        try {
            String contents = Files.readString(path, StandardCharsets.ISO_8859_1);
            String own = Platform.usesMusl() ? "musl" : "glibc";
            String needed = contents.contains("libc.so.6\0") ? "glibc" : contents.contains("libc.so\0") ? "musl" : own;
            return needed.equals(own) ? null : "it is for " + needed + ", and this program uses " + own;
        } catch (IOException error) {
            return null;
        }
    }

    private static ByteBuffer header(Path path) throws IOException {
        try (InputStream file = Files.newInputStream(path)) {
            return ByteBuffer.wrap(file.readNBytes(HEADER)).order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    /** The end of the table of sections, which linkers write last. */
    private static long sectionsEnd(ByteBuffer header) {
        boolean has64Bits = header.get(CLASS) == 2;
        long start = has64Bits ? header.getLong(40) : Integer.toUnsignedLong(header.getInt(32));
        int sizes = has64Bits ? 58 : 46;
        return start + (long) header.getShort(sizes) * header.getShort(sizes + 2);
    }
}
