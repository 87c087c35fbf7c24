<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * Finds the extension, and sees that it is whole and for the machine of this PHP.
 *
 * @internal
 */
final class Library
{
    /** The command `onewrite` reads the same variable. */
    public const VARIABLE = 'ONEWRITE_EXTENSION_LIBRARY';
    private const FILE = 'libonewrite.so';
    private const HEADER = 64;
    /** `e_machine` of elf(5). */
    private const MACHINES = [3 => 'x86', 40 => 'ARM', 62 => 'x86_64', 183 => 'aarch64', 243 => 'RISC-V'];

    public static function path(): string
    {
        $named = getenv(self::VARIABLE);
        if ($named !== false && $named !== '') {
            return self::real($named)
                ?? throw new OneWriteException(self::VARIABLE . ": there is no file $named" . self::hidden());
        }
        $own = dirname(__DIR__) . '/lib/' . self::FILE;
        $directory = (string) ini_get('sqlite3.extension_dir');
        return self::real($own)
            ?? ($directory === '' ? null : self::real("$directory/" . self::FILE))
            ?? throw new OneWriteException(
                "this package has no extension ($own)" . self::hidden() . ': install php-onewrite for this machine, '
                . 'or name the library in ' . self::VARIABLE
            );
    }

    public static function hidden(): string
    {
        return Loader::takesUris() ? '' : ' that open_basedir allows';
    }

    private static function real(string $path): ?string
    {
        $real = realpath($path);
        return $real !== false && is_file($real) ? $real : null;
    }

    /**
     * SQLite says "No such file" of a library that is for another machine, or is none. One that is cut
     * short would end the process.
     */
    public static function check(string $path): void
    {
        $wayOut = 'install onewrite again, or name another library in ' . self::VARIABLE;
        $header = self::header($path)
            ?? throw new OneWriteException("cannot load $path: it is no shared library: $wayOut");
        if (filesize($path) < self::end($header)) {
            throw new OneWriteException("cannot load $path: it is cut short: $wayOut");
        }
        $found = self::machine($header);
        $expected = self::machine(@self::header('/proc/self/exe') ?? $header);
        if ($found !== $expected) {
            throw new OneWriteException("cannot load $path: it is for $found, and this PHP is for $expected: $wayOut");
        }
    }

    /** Null where the file is no ELF file. */
    private static function header(string $path): ?string
    {
        $header = (string) file_get_contents($path, false, null, 0, self::HEADER);
        return strlen($header) === self::HEADER && str_starts_with($header, "\x7FELF") ? $header : null;
    }

    /** The end of the table of sections, which linkers write last. */
    private static function end(string $header): int
    {
        $format = self::has32Bits($header) ? '@32/Vstart/@46/vbytes/vcount' : '@40/Pstart/@58/vbytes/vcount';
        $table = unpack($format, $header);
        return $table['start'] + $table['bytes'] * $table['count'];
    }

    /** Such as "x86_64, 64 bits". */
    private static function machine(string $header): string
    {
        $number = unpack('v', $header, 18)[1];
        return (self::MACHINES[$number] ?? "machine $number") . (self::has32Bits($header) ? ', 32 bits' : ', 64 bits');
    }

    private static function has32Bits(string $header): bool
    {
        return $header[4] === "\x01";
    }
}
