<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * Enters a mode, and checks `PRAGMA onewrite_status`. Errors do not name the database: callers do.
 *
 * @internal
 */
final class Status
{
    /** Changes an open connection into a mode at a level. Without a mode: the one that it remembers. */
    public static function enter(Handle $handle, ?string $mode, int $level): void
    {
        $handle->ask('PRAGMA journal_mode=' . ($mode ?? self::remembered($handle)));
        $handle->ask('PRAGMA synchronous=' . Words::LEVELS[$level]);
        self::checked($handle, $mode, $level);
    }

    public static function enterStock(Handle $handle, int $level): void
    {
        $handle->ask('PRAGMA journal_mode=WAL');
        $handle->ask('PRAGMA synchronous=' . Words::LEVELS[$level]);
    }

    private static function remembered(Handle $handle): string
    {
        $handle->ask('PRAGMA journal_mode'); // opens the file
        $status = self::read($handle);
        return $status['mode'] ?? $status['kept_out_of']['mode'] ?? OneWrite::MODES[0];
    }

    /** @return array<string, mixed>|null */
    private static function read(Handle $handle): ?array
    {
        $answer = $handle->ask('PRAGMA onewrite_status');
        return $answer === null ? null : json_decode((string) $answer, true, flags: JSON_THROW_ON_ERROR);
    }

    /** @return array<string, mixed> */
    public static function checked(Handle $handle, ?string $mode, int $level): array
    {
        $status = self::read($handle);
        self::checkName($handle->file(), $status !== null);
        if ($status === null) {
            $why = 'SQLite opened it with another VFS; use OneWrite::connect or OneWrite::open, or call '
                . 'OneWrite::load and open OneWrite::uri with PDO';
            $why = Loader::isSupported() ? $why : Loader::ONLY_LINUX;
            throw new OneWriteException("the connection does not use onewrite: $why");
        }
        self::checkMode($handle, $status, $mode);
        self::checkLevel($status, $level);
        return $status;
    }

    private static function checkName(string $file, bool $isOurs): void
    {
        $name = Address::meantAsUri($file, $isOurs);
        if ($name !== null) {
            throw new OneWriteException(
                "the database is a file that is named $name, because the driver took the URI for a name: "
                . 'open it by its path alone, or with PDO as sqlite:file:...'
            );
        }
    }

    /** @param array<string, mixed> $status */
    private static function checkMode(Handle $handle, array $status, ?string $mode): void
    {
        $keptOut = $status['kept_out_of'];
        if ($keptOut !== null) {
            $named = $mode ?? $keptOut['mode'] ?? OneWrite::MODES[0];
            throw new OneWriteException("the database is not in $named mode: {$keptOut['why']}");
        }
        if ($status['mode'] === null || $status['mode'] !== ($mode ?? $status['mode'])) {
            $found = $status['mode'] ?? $handle->ask('PRAGMA journal_mode');
            $named = $mode ?? 'one of onewrite';
            throw new OneWriteException("the database is in $found mode, not in $named");
        }
        if (($status['poisoned'] ?? null) !== null) {
            throw new OneWriteException("the log cannot be used any more: {$status['poisoned']}");
        }
    }

    /**
     * The status has the level that holds: onewrite_synchronous may raise the one of the pragma.
     *
     * @param array<string, mixed> $status
     */
    private static function checkLevel(array $status, int $level): void
    {
        $wanted = Words::LEVELS[$level];
        $found = Words::level($status['synchronous']);
        if ($found < $level) {
            $name = Words::LEVELS[$found];
            throw new OneWriteException("synchronous is $name, not $wanted: run PRAGMA synchronous=$wanted");
        }
        if ($level < Words::FULL) {
            return;
        }
        $weak = ['sync' => $status['sync'] === 'normal' ? 'normal' : null, 'group_synch' => $status['group_synch']];
        foreach (array_filter($weak) as $setting => $word) {
            throw new OneWriteException(
                "onewrite_$setting=$word lets a power cut lose commits: it does not go with synchronous=$wanted"
            );
        }
    }
}
