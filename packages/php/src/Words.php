<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * The words that callers pass, and their check.
 *
 * @internal
 */
final class Words
{
    /** By SQLite's numbers. */
    public const LEVELS = ['OFF', 'NORMAL', 'FULL', 'EXTRA'];
    public const FULL = 2;

    public static function mode(string $word): string
    {
        return OneWrite::MODES[self::place($word, 'mode', OneWrite::MODES)];
    }

    /** Null stays so: any mode, or the one that the database remembers. */
    public static function modeOrNull(?string $word): ?string
    {
        return $word === null ? null : self::mode($word);
    }

    public static function level(string $word): int
    {
        return self::place($word, 'synchronous', self::LEVELS);
    }

    /** @param list<string> $words */
    private static function place(string $word, string $what, array $words): int
    {
        foreach ($words as $place => $known) {
            if (strcasecmp($word, $known) === 0) {
                return $place;
            }
        }
        $known = implode(', ', $words);
        throw new \InvalidArgumentException("unknown $what '$word': it is one of $known");
    }
}
