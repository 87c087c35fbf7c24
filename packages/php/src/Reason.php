<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * Why SQLite cannot open or write a database: its own words tell neither the place nor the way out.
 *
 * @internal
 */
final class Reason
{
    private const ABOUT_FILES = '~unable to open|read-?only~i';

    /** Of a path or a URI, after an error. Empty where the files tell nothing. */
    public static function andWayOut(string $name, string $said): string
    {
        if (!preg_match(self::ABOUT_FILES, $said)) {
            return '';
        }
        $path = self::absolute(Address::pathOf($name));
        $directory = dirname($path);
        $reason = match (true) {
            !@is_dir($directory) => "there is no directory $directory" . Library::hidden() . ': make it first',
            is_dir($path) => "$path is a directory: name a file in it",
            file_exists($path) && !(is_readable($path) && is_writable($path)) =>
                "this user may not read and write $path: change its owner or mode",
            !(is_writable($directory) && is_executable($directory)) =>
                "this user may make no files in $directory, where the log lies, too: change its owner or mode",
            default => '',
        };
        return $reason === '' ? '' : ": $reason";
    }

    private static function absolute(string $path): string
    {
        $whole = str_starts_with($path, '/') ? $path : getcwd() . "/$path";
        return preg_replace('~/(\./)*~', '/', $whole);
    }
}
