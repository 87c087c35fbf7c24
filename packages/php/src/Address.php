<?php

declare(strict_types=1);

namespace OneWrite;

/**
 * Names of databases: paths, and URIs of SQLite (`file:...`).
 *
 * @internal
 */
final class Address
{
    /** The start of a name for PDO. */
    private const PREFIX = '~^sqlite3?:~i';
    /** The end of a path that was meant as a URI. */
    private const PARAMETERS = '~\?[^/]*=~';

    /** The URI that opens a database with onewrite. Without `$mode` the database stays in its own. */
    public static function uri(string $path, ?string $mode): string
    {
        $wanted = ['vfs' => 'onewrite'] + ($mode === null ? [] : ['journal_mode' => $mode]);
        self::refuse($path);
        if (!str_starts_with($path, 'file:')) {
            if (preg_match(self::PARAMETERS, $path)) {
                throw new \InvalidArgumentException(
                    "$path has parameters, but no \"file:\", so it names a file: use file:$path"
                );
            }
            // Two slashes would begin a host's name.
            $escaped = implode('/', array_map('rawurlencode', explode('/', preg_replace('~^/+~', '/', $path))));
            return "file:$escaped?" . http_build_query($wanted);
        }
        $uri = explode('#', $path, 2)[0];
        $named = self::parameters($uri);
        foreach ($wanted as $name => $word) {
            if (!isset($named[$name])) {
                $uri .= (str_contains($uri, '?') ? '&' : '?') . "$name=$word";
            } elseif ($named[$name] !== $word) {
                throw new \InvalidArgumentException("$path names $name={$named[$name]}, and $word is asked for");
            }
        }
        return $uri;
    }

    /** The path of the file that a path or a URI names. */
    public static function pathOf(string $name): string
    {
        if (!str_starts_with($name, 'file:')) {
            return $name;
        }
        $path = rawurldecode(preg_split('~[?#]~', substr($name, strlen('file:')))[0]);
        // An empty host, or "localhost", may come before an absolute path.
        return preg_replace('~^//(localhost)?/~', '/', $path);
    }

    /** The mode that a URI names, or null. */
    public static function modeIn(string $path): ?string
    {
        $named = str_starts_with($path, 'file:') ? self::parameters($path) : [];
        return Words::modeOrNull($named['journal_mode'] ?? null);
    }

    /** A path for a driver that would make a file of a URI's name. */
    public static function plain(string $path, string $driver, string $wayOut): string
    {
        self::refuse($path);
        if (str_starts_with($path, 'file:') || preg_match(self::PARAMETERS, $path)) {
            throw new \InvalidArgumentException(
                "$driver takes no URIs, and would make a file that is named $path: give the path alone$wayOut"
            );
        }
        return $path;
    }

    /** The name of a file that was meant as a URI, or null. `$isOurs`: it is open with onewrite. */
    public static function meantAsUri(string $file, bool $isOurs): ?string
    {
        $name = basename($file);
        $pattern = $isOurs ? '~[?&]vfs=~' : '~^file:|[?&](vfs|journal_mode|onewrite_\w+)=~';
        return preg_match($pattern, $name) ? $name : null;
    }

    private static function refuse(string $path): void
    {
        if (str_contains($path, "\0")) {
            throw new \InvalidArgumentException('the path has a NUL byte');
        }
        $bare = preg_replace(self::PREFIX, '', $path);
        $isMemory = $bare === '' || $bare === ':memory:' || str_starts_with($path, 'file::memory:')
            || str_starts_with($path, 'file:') && (self::parameters($path)['mode'] ?? '') === 'memory';
        if ($isMemory) {
            throw new OneWriteException('a database in memory has no journal: open it with the driver');
        }
        if ($bare !== $path) {
            $hasParameters = !str_starts_with($bare, 'file:') && preg_match(self::PARAMETERS, $bare);
            $usable = $hasParameters ? "file:$bare" : $bare;
            throw new \InvalidArgumentException(
                "$path has the prefix of a driver, so it names a file: use $usable"
            );
        }
    }

    /** @return array<string, string> */
    private static function parameters(string $uri): array
    {
        $named = [];
        $query = explode('?', explode('#', $uri, 2)[0], 2)[1] ?? '';
        foreach (array_filter(explode('&', $query)) as $parameter) {
            [$name, $value] = explode('=', $parameter, 2) + [1 => ''];
            $named[rawurldecode($name)] = rawurldecode($value);
        }
        return $named;
    }
}
