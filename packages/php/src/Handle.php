<?php

declare(strict_types=1);

namespace OneWrite;

use PDO;
use SQLite3;

/**
 * A connection of either driver. Its errors have SQLite's words only, whatever the driver's error mode is.
 *
 * @internal
 */
final class Handle
{
    public function __construct(private PDO|SQLite3 $db)
    {
        $name = $db instanceof PDO ? $db->getAttribute(PDO::ATTR_DRIVER_NAME) : 'sqlite';
        if ($name !== 'sqlite') {
            throw new \InvalidArgumentException("onewrite needs PDO's driver sqlite, not $name");
        }
    }

    /** The first value of the first row, or null if there is none. */
    public function ask(string $sql): int|float|string|null
    {
        return $this->db instanceof PDO ? self::askPdo($this->db, $sql) : self::askSqlite3($this->db, $sql);
    }

    /** The file of the database, as SQLite has it. */
    public function file(): string
    {
        return (string) $this->ask("SELECT file FROM pragma_database_list WHERE name = 'main'");
    }

    private static function askPdo(PDO $db, string $sql): int|float|string|null
    {
        $mode = $db->getAttribute(PDO::ATTR_ERRMODE);
        $db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
        try {
            $statement = $db->prepare($sql, [PDO::ATTR_STATEMENT_CLASS => [\PDOStatement::class]]);
            $statement->execute();
            $value = $statement->fetchColumn();
            $statement->closeCursor();
            return $value === false ? null : $value;
        } catch (\PDOException $error) {
            throw self::failure($error);
        } finally {
            $db->setAttribute(PDO::ATTR_ERRMODE, $mode);
        }
    }

    private static function askSqlite3(SQLite3 $db, string $sql): int|float|string|null
    {
        $had = $db->enableExceptions(true);
        try {
            return $db->querySingle($sql);
        } catch (\Exception $error) {
            throw new OneWriteException($db->lastErrorMsg(), $db->lastErrorCode(), $error);
        } finally {
            $db->enableExceptions($had);
        }
    }

    public static function failure(\PDOException $error): OneWriteException
    {
        [, $code, $reason] = ($error->errorInfo ?? []) + [null, 0, $error->getMessage()];
        return new OneWriteException((string) $reason, (int) $code, $error);
    }
}
