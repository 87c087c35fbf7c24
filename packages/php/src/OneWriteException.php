<?php

declare(strict_types=1);

namespace OneWrite;

/** onewrite is not in use as it was asked for. The text has the reason, and the code is SQLite's, or 0. */
final class OneWriteException extends \RuntimeException
{
    private const BUSY = 5; // SQLITE_BUSY

    /** @internal */
    public static function of(string $database, self $error, string $wayOut = ''): self
    {
        return new self("$database: {$error->getMessage()}$wayOut", $error->getCode(), $error->getPrevious());
    }

    /** @internal Whether another connection is in the way. */
    public function isBusy(): bool
    {
        return ($this->getCode() & 0xFF) === self::BUSY;
    }
}
