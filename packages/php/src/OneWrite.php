<?php

declare(strict_types=1);

namespace OneWrite;

use PDO;
use SQLite3;

/**
 * Durable SQLite commits in one device write, for PDO and for SQLite3.
 *
 *     $db = OneWrite\OneWrite::connect('app.db');
 *
 * The database is then in journal mode `onewrite` at synchronous=FULL, or `connect` has thrown. A database
 * that remembers another of MODES stays in that one.
 */
final class OneWrite
{
    public const VERSION = '0.1.0';

    /** The journal modes of onewrite. */
    public const MODES = ['onewrite', 'waldio', 'swal', 'direct'];

    private const RETRY_MICROSECONDS = 20_000;
    private const CANNOT_OPEN = 14; // SQLITE_CANTOPEN

    private function __construct()
    {
    }

    /**
     * Opens a database with PDO, in a journal mode of onewrite, and checks it.
     *
     * Without `$mode` it is the one that the database remembers, and `onewrite` for any other database. The
     * path may be a URI (`file:...`), with settings of onewrite as its parameters. The options are PDO's.
     * Another connection that is in the way is waited for, as long as PDO::ATTR_TIMEOUT says.
     *
     * On systems other than Linux it warns, and opens in stock WAL.
     *
     * @param array<int, mixed> $options
     * @throws OneWriteException with the reason, unless it is in that mode at `$synchronous`
     * @throws \InvalidArgumentException for an unknown word
     */
    public static function connect(
        string $path,
        ?string $mode = null,
        string $synchronous = 'FULL',
        array $options = [],
    ): PDO {
        $takesUris = Loader::takesUris();
        $uri = $takesUris
            ? Address::uri($path, Words::modeOrNull($mode))
            : Address::plain($path, 'PDO with open_basedir', '');
        $mode ??= Address::modeIn($path);
        $open = static function (bool $isOurs) use ($path, $uri, $options): PDO {
            try {
                return new PDO('sqlite:' . ($isOurs ? $uri : $path), null, null, $options);
            } catch (\PDOException $error) {
                throw Handle::failure($error);
            }
        };
        return self::opened($path, $mode, $synchronous, !$takesUris, $open);
    }

    /**
     * The same with the class SQLite3, which takes no URIs. So onewrite becomes the VFS of every database
     * that this process opens from now on. The handle throws exceptions. `$timeout` is in milliseconds.
     */
    public static function open(
        string $path,
        ?string $mode = null,
        string $synchronous = 'FULL',
        int $flags = SQLITE3_OPEN_READWRITE | SQLITE3_OPEN_CREATE,
        int $timeout = 5000,
    ): SQLite3 {
        $plain = Address::plain($path, 'SQLite3', ', or use OneWrite::connect');
        $open = static function () use ($plain, $flags, $timeout): SQLite3 {
            try {
                $db = new SQLite3($plain, $flags);
            } catch (\Exception $error) {
                $reason = preg_replace('~^Unable to open database: ~', '', $error->getMessage());
                throw new OneWriteException($reason, self::CANNOT_OPEN, $error);
            }
            $db->enableExceptions(true);
            $db->busyTimeout($timeout);
            return $db;
        };
        return self::opened($path, $mode, $synchronous, true, $open);
    }

    /** Opens until no other connection is in the way, or its time is over. */
    private static function opened(
        string $path,
        ?string $mode,
        string $synchronous,
        bool $makeDefault,
        \Closure $open,
    ): PDO|SQLite3 {
        $mode = Words::modeOrNull($mode);
        $level = Words::level($synchronous);
        $isOurs = self::load($makeDefault);
        $start = hrtime(true);
        while (true) {
            $timeout = 0;
            try {
                $db = $open($isOurs);
                $handle = new Handle($db);
                $timeout = $handle->ask('PRAGMA busy_timeout') * 1_000_000;
                $isOurs ? Status::enter($handle, $mode, $level) : Status::enterStock($handle, $level);
                return $db;
            } catch (OneWriteException $error) {
                if (!$error->isBusy() || hrtime(true) - $start >= $timeout) {
                    throw self::named($path, $error);
                }
            }
            // An open connection is in the way of others that wait, too. So each try opens another one.
            unset($handle, $db, $error);
            usleep(self::RETRY_MICROSECONDS + random_int(0, self::RETRY_MICROSECONDS));
        }
    }

    private static function named(string $path, OneWriteException $error): OneWriteException
    {
        return OneWriteException::of($path, $error, Reason::andWayOut($path, $error->getMessage()));
    }

    /**
     * Returns `PRAGMA onewrite_status` if the database is in the mode, and its commits are at least as
     * durable as `$synchronous`. Without `$mode` any mode of onewrite will do.
     *
     * @return array<string, mixed>
     * @throws OneWriteException with the reason otherwise
     */
    public static function check(PDO|SQLite3 $db, ?string $mode = null, string $synchronous = 'FULL'): array
    {
        $handle = new Handle($db);
        try {
            return Status::checked($handle, Words::modeOrNull($mode), Words::level($synchronous));
        } catch (OneWriteException $error) {
            throw OneWriteException::of($handle->file() ?: 'a database in memory', $error);
        }
    }

    /**
     * Makes the VFS available to databases that this process opens later: by `uri` with PDO, or by any name
     * with `$makeDefault`.
     *
     * A program that asks for WAL keeps the mode of onewrite, because this sets ONEWRITE_UPGRADE_WAL unless
     * the environment has it. Returns whether the VFS is there: false, with a warning, on systems other
     * than Linux.
     *
     * @throws OneWriteException if it cannot be loaded
     */
    public static function load(bool $makeDefault = false): bool
    {
        return Loader::load($makeDefault);
    }

    /** The path of the loadable extension. */
    public static function loadablePath(): string
    {
        return Library::path();
    }

    /**
     * The URI that opens a database with onewrite: call `load` first, then
     * `new PDO('sqlite:' . OneWrite::uri('app.db'))`. It changes a database that is in another mode, unless
     * `$mode` is null.
     */
    public static function uri(string $path, ?string $mode = 'onewrite'): string
    {
        return Address::uri($path, Words::modeOrNull($mode));
    }
}
