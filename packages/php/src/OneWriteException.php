<?php

declare(strict_types=1);

namespace OneWrite;

/** onewrite is not in use as it was asked for. The text has the reason, and the code is SQLite's, or 0. */
final class OneWriteException extends \RuntimeException
{
    private const BUSY = 5; // SQLITE_BUSY

    /** SQLite's words for how it found the reason are left out. */
    public function __construct(string $reason, int $code = 0, ?\Throwable $previous = null)
    {
        parent::__construct(str_replace('automatic extension loading failed: ', '', $reason), $code, $previous);
    }

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
