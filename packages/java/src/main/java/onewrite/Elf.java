package onewrite;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * The machine that a shared library is for. Linux says "No such file or directory" about a library for
 * another machine, so the loader asks here first.
 */
final class Elf {
    private static final int HEADER = 20;
    private static final int MACHINE = 18;
    /** {@code e_machine} of elf(5), by the names of the jar's folders. */
    private static final Map<Integer, String> MACHINES =
            Map.of(3, "x86", 40, "armv7", 62, "x86_64", 183, "aarch64", 243, "riscv64");

    private Elf() {}

    /** The machine, or null where the file is no ELF file or is for a machine that is not known. */
    static String machine(Path path) throws IOException {
        try (InputStream file = Files.newInputStream(path)) {
            byte[] header = file.readNBytes(HEADER);
            if (header.length < HEADER || header[0] != 0x7F || header[1] != 'E' || header[2] != 'L' || header[3] != 'F') {
                return null;
            }
            return MACHINES.get((header[MACHINE] & 0xFF) | (header[MACHINE + 1] & 0xFF) << 8);
        }
    }
}
