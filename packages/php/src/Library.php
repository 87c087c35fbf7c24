<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * Finds the extension, and sees that it is for the machine of this PHP.
 *
 * @internal
 */
final class Library
{
    /** The command `onewrite` reads the same variable. */
    public const VARIABLE = 'ONEWRITE_EXTENSION_LIBRARY';
    private const FILE = 'libonewrite.so';
    private const HEADER = 20;
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

    private static function hidden(): string
    {
        return Loader::takesUris() ? '' : ' that open_basedir allows';
    }

    private static function real(string $path): ?string
    {
        $real = realpath($path);
        return $real !== false && is_file($real) ? $real : null;
    }

    /** SQLite says "No such file" of a library that is for another machine, or is none. */
    public static function checkMachine(string $path): void
    {
        $wayOut = 'name another library in ' . self::VARIABLE;
        $found = self::machine($path)
            ?? throw new OneWriteException("cannot load $path: it is no shared library: $wayOut");
        $expected = @self::machine('/proc/self/exe') ?? $found;
        if ($found !== $expected) {
            throw new OneWriteException("cannot load $path: it is for $found, and this PHP is for $expected: $wayOut");
        }
    }

    /** Such as "x86_64, 64 bits". Null where the file is no ELF file. */
    private static function machine(string $path): ?string
    {
        $header = (string) file_get_contents($path, false, null, 0, self::HEADER);
        if (strlen($header) < self::HEADER || !str_starts_with($header, "\x7FELF")) {
            return null;
        }
        $number = ord($header[18]) | ord($header[19]) << 8;
        return (self::MACHINES[$number] ?? "machine $number") . ($header[4] === "\x01" ? ', 32 bits' : ', 64 bits');
    }
}
