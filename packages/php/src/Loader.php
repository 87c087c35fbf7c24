<?php

declare(strict_types=1);

namespace OneWrite;

use PDO;
use SQLite3;

/**
 * Loads the extension into the SQLite of this process. It stays there, also for later requests.
 *
 * @internal
 */
final class Loader
{
    private const UPGRADE_VARIABLE = 'ONEWRITE_UPGRADE_WAL';
    private const DEFAULT_VARIABLE = 'ONEWRITE_MAKE_DEFAULT';
    public const ONLY_LINUX = 'onewrite runs on Linux only';

    private const DECLARATIONS = <<<'C'
        int sqlite3_open(const char *, void **);
        int sqlite3_close(void *);
        int sqlite3_db_config(void *, int, ...);
        int sqlite3_load_extension(void *, const char *, const char *, char **);
        void sqlite3_free(void *);
        C;
    private const ENABLE_LOAD_EXTENSION = 1005; // SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION

    /** Tests set another system. */
    public static string $system = PHP_OS_FAMILY;

    public static function isSupported(): bool
    {
        return self::$system === 'Linux';
    }

    /** Returns whether the VFS is there: false, with a warning, on systems other than Linux. */
    public static function load(bool $makeDefault): bool
    {
        if (!self::isSupported()) {
            trigger_error(self::ONLY_LINUX . ': databases are in stock WAL here', E_USER_WARNING);
            return false;
        }
        // A program that asks for WAL keeps the mode. PHP forgets the variable at the end of a request.
        if (getenv(self::UPGRADE_VARIABLE) === false) {
            putenv(self::UPGRADE_VARIABLE . '=onewrite');
        }
        $makeDefault = $makeDefault || !self::takesUris();
        $isLoaded = $makeDefault ? self::isDefault(...) : self::hasVfs(...);
        if (!$isLoaded()) {
            self::loadLibrary($makeDefault);
            if (!$isLoaded()) {
                throw new OneWriteException('the extension was loaded into another SQLite than the one of the drivers');
            }
        }
        return true;
    }

    /** PDO refuses each URI where open_basedir is set. */
    public static function takesUris(): bool
    {
        return (string) ini_get('open_basedir') === '';
    }

    private static function hasVfs(): bool
    {
        try {
            new PDO('sqlite:file::memory:?vfs=onewrite');
            return true;
        } catch (\PDOException $error) {
            if (str_contains($error->getMessage(), 'no such vfs')) {
                return false;
            }
            throw Handle::failure($error);
        }
    }

    /** The pragma is answered before SQLite reads the file, so any file will do. */
    private static function isDefault(): bool
    {
        $db = new SQLite3(__FILE__, SQLITE3_OPEN_READONLY);
        try {
            return (new Handle($db))->ask('PRAGMA onewrite_status') !== null;
        } finally {
            $db->close();
        }
    }

    private static function loadLibrary(bool $makeDefault): void
    {
        $path = Library::path();
        Library::check($path);
        $had = getenv(self::DEFAULT_VARIABLE);
        if ($makeDefault) {
            putenv(self::DEFAULT_VARIABLE . '=1');
        }
        try {
            $why = self::loadByIni($path) ?? self::loadByFfi($path);
        } finally {
            putenv($had === false ? self::DEFAULT_VARIABLE : self::DEFAULT_VARIABLE . "=$had");
        }
        if ($why !== '') {
            throw new OneWriteException("cannot load $path: $why");
        }
    }

    /** The reason of a failure, or "". Null if the directory of SQLite's extensions is another one. */
    private static function loadByIni(string $path): ?string
    {
        $directory = rtrim((string) ini_get('sqlite3.extension_dir'), '/') . '/';
        if (ini_get('sqlite3.extension_dir') === '' || !str_starts_with($path, $directory)) {
            return null;
        }
        $db = new SQLite3(':memory:');
        $db->enableExceptions(true);
        try {
            $db->loadExtension(substr($path, strlen($directory)));
            return '';
        } catch (\Exception $error) {
            return $error->getMessage();
        } finally {
            $db->close();
        }
    }

    /** The reason of a failure, or "". */
    private static function loadByFfi(string $path): string
    {
        $directory = dirname($path);
        $wayOut = "set sqlite3.extension_dir=$directory in php.ini (\"phpenmod onewrite\" does it for the package "
            . 'php-onewrite), or let PHP use FFI';
        if (!extension_loaded('FFI')) {
            return "this PHP loads extensions of SQLite from sqlite3.extension_dir only: $wayOut";
        }
        try {
            $sqlite = \FFI::cdef(self::DECLARATIONS, 'libsqlite3.so.0');
        } catch (\FFI\Exception $error) {
            return "it is not below sqlite3.extension_dir, and {$error->getMessage()}: $wayOut";
        }
        $db = $sqlite->new('void *');
        $reason = $sqlite->new('char *');
        try {
            $code = $sqlite->sqlite3_open(':memory:', \FFI::addr($db))
                ?: $sqlite->sqlite3_db_config($db, self::ENABLE_LOAD_EXTENSION, 1, null)
                ?: $sqlite->sqlite3_load_extension($db, self::withoutSuffix($path), null, \FFI::addr($reason));
            return match (true) {
                $code === 0 => '',
                \FFI::isNull($reason) => "SQLite's code $code",
                default => \FFI::string($reason),
            };
        } finally {
            $sqlite->sqlite3_free($reason);
            $sqlite->sqlite3_close($db);
        }
    }

    /**
     * SQLite tries the name as it is, then with ".so", and reports the error of the last try. Without
     * ".so" that is the error of the file itself.
     */
    private static function withoutSuffix(string $path): string
    {
        return preg_replace('~\.so$~', '', $path);
    }
}
