<?php

// load and loadablePath, each in a process of its own.

declare(strict_types=1);

use OneWrite\OneWrite;

const SAYS = 'try { %s; echo "nothing\n"; } catch (Exception $error) { echo $error->getMessage(), "\n"; }';
const COMMITS = <<<'PHP'
    $db = new PDO('sqlite:file:app.db?vfs=onewrite');
    echo $db->query('PRAGMA journal_mode=onewrite')->fetchColumn(), "\n";
    PHP;

/** The two ways to load: the settings of php.ini. */
function ways(): array
{
    return ['ini' => ['sqlite3.extension_dir' => dirname(OneWrite::loadablePath()), 'ffi.enable' => 0], 'FFI' => []];
}

return [
    'it makes the VFS available, once and again' => function (Place $place) {
        foreach (ways() as $way => $ini) {
            $code = 'var_dump(OneWrite::load(), OneWrite::load(), getenv("ONEWRITE_UPGRADE_WAL"));';
            $expected = "bool(true)\nbool(true)\nstring(8) \"onewrite\"\nonewrite";
            same($expected, $place->printed($code . COMMITS, ini: $ini), $way);
        }
    },

    'it makes onewrite the default only when asked' => function (Place $place) {
        $code = <<<'PHP'
            foreach ([false, true] as $makeDefault) {
                OneWrite::load($makeDefault);
                foreach (DRIVERS as $driver) {
                    $db = $driver === 'PDO' ? new PDO('sqlite:app.db') : new SQLite3('app.db');
                    echo one($db, 'PRAGMA onewrite_status') ? 'ours' : 'stock', "\n";
                    unset($db);
                }
            }
            var_dump(getenv('ONEWRITE_MAKE_DEFAULT'));
            PHP;
        foreach (ways() as $way => $ini) {
            same("stock\nstock\nours\nours\nbool(false)", $place->printed($code, ini: $ini), $way);
        }
    },

    'a directory above the library will do for php.ini' => function (Place $place) {
        same('onewrite', $place->printed('OneWrite::load();' . COMMITS, ini: ['sqlite3.extension_dir' => '/', 'ffi.enable' => 0]));
    },

    'the library is found in the directory of php.ini' => function (Place $place) {
        $ini = ['sqlite3.extension_dir' => $place->directory, 'ffi.enable' => 0];
        copy(OneWrite::loadablePath(), "$place->directory/libonewrite.so");
        $without = ['ONEWRITE_EXTENSION_LIBRARY' => null];
        $code = 'echo OneWrite::loadablePath(), "\n"; OneWrite::load();' . COMMITS;
        same("$place->directory/libonewrite.so\nonewrite", $place->printed($code, [], $ini, $without));
    },

    'the setting that is missing is named' => function (Place $place) {
        $said = $place->printed(sprintf(SAYS, 'OneWrite::load()'), ini: ['ffi.enable' => 0]);
        $path = OneWrite::loadablePath();
        same("cannot load $path: it is not below sqlite3.extension_dir, and FFI API is restricted by \"ffi.enable\" "
            . 'configuration directive: set sqlite3.extension_dir=' . dirname($path) . ' in php.ini ("phpenmod onewrite" '
            . 'does it for the package php-onewrite), or let PHP use FFI', $said);
    },

    'it leaves what the environment says of WAL' => function (Place $place) {
        $code = '$db = OneWrite::connect("app.db"); echo one($db, "PRAGMA journal_mode=WAL"), "\n";'
            . sprintf(SAYS, 'OneWrite::check($db)');
        $said = $place->printed($code, variables: ['ONEWRITE_UPGRADE_WAL' => '0']);
        same("wal\n$place->path: the database is in wal mode, not in one of onewrite", $said);
    },

    'a library that is not there is named' => function (Place $place) {
        $code = implode(array_map(
            fn (string $use) => sprintf(SAYS, $use),
            ['OneWrite::loadablePath()', 'OneWrite::load()', 'OneWrite::connect("x")', 'OneWrite::open("x")'],
        ));
        $nowhere = ['ONEWRITE_EXTENSION_LIBRARY' => '/nowhere/libonewrite.so'];
        $text = 'ONEWRITE_EXTENSION_LIBRARY: there is no file /nowhere/libonewrite.so';
        same(array_fill(0, 4, $text), explode("\n", $place->printed($code, variables: $nowhere)));
        $own = realpath(PACKAGE) . '/lib/libonewrite.so';
        $text = "this package has no extension ($own): install php-onewrite for this machine, or name the library in "
            . 'ONEWRITE_EXTENSION_LIBRARY';
        if (!file_exists($own)) {
            same(array_fill(0, 4, $text), explode("\n", $place->printed($code, variables: ['ONEWRITE_EXTENSION_LIBRARY' => null])));
        }
    },

    'a library for another machine, one that is damaged, and one that is none' => function (Place $place) {
        $library = "$place->directory/libonewrite.so";
        $real = file_get_contents(OneWrite::loadablePath());
        // e_machine and the class of elf(5).
        $other = ord($real[18]) === 183 ? ['x86_64', chr(62)] : ['aarch64', chr(183)];
        $texts = [
            "it is for $other[0], 64 bits, and this PHP is for " => substr_replace($real, $other[1], 18, 1),
            'it is for ARM, 32 bits, and this PHP is for ' => substr_replace(substr_replace($real, chr(40), 18, 1), "\x01", 4, 1),
            'it is no shared library: install onewrite again, or name another library in ONEWRITE_EXTENSION_LIBRARY'
                => str_repeat('no library, but longer than a header', 2),
            'it is no shared library' => "\x7FELF",
            'it is no shared library: install' => substr($real, 0, 40),
            'it is cut short: install' => substr($real, 0, -1),
        ];
        foreach ($texts as $text => $contents) {
            file_put_contents($library, $contents);
            $said = $place->printed(sprintf(SAYS, 'OneWrite::connect("x")'), variables: ['ONEWRITE_EXTENSION_LIBRARY' => $library]);
            same(true, str_starts_with($said, "cannot load $library: $text"), $said);
        }
    },

    'open_basedir: both drivers take paths alone' => function (Place $place) {
        $ini = ['open_basedir' => implode(':', [$place->directory, realpath(PACKAGE), dirname(OneWrite::loadablePath())])];
        $code = <<<'PHP'
            foreach (DRIVERS as $driver) {
                $db = opened($driver, $driver);
                $db->exec('CREATE TABLE t(x)');
                echo OneWrite::check($db)['mode'], "\n";
            }
            PHP;
        $code .= sprintf(SAYS, 'OneWrite::connect("file:x")');
        foreach (ways() as $way => $more) {
            $said = $place->printed($code, ini: [...$ini, ...$more]);
            same("onewrite\nonewrite\nPDO with open_basedir takes no URIs, and would make a file that is named file:x: give the "
                . 'path alone', $said, $way);
            array_map('unlink', glob("$place->directory/{PDO,SQLite3}*", GLOB_BRACE));
        }
        $outside = ['open_basedir' => "$place->directory:" . realpath(PACKAGE)];
        $said = $place->printed(sprintf(SAYS, 'OneWrite::load()'), ini: $outside);
        same('ONEWRITE_EXTENSION_LIBRARY: there is no file ' . getenv('ONEWRITE_EXTENSION_LIBRARY') . ' that open_basedir allows', $said);
    },

    'other systems get a warning and stock WAL' => function (Place $place) {
        $code = <<<'PHP'
            set_error_handler(function (int $level, string $text) { echo "$text\n"; return true; });
            foreach (['Darwin', 'Windows'] as \OneWrite\Loader::$system) {
                var_dump(OneWrite::load());
                foreach (DRIVERS as $driver) {
                    $db = opened($driver, "app.db", "waldio");
                    echo one($db, "PRAGMA journal_mode"), one($db, "PRAGMA synchronous"), "\n";
                    try { OneWrite::check($db); } catch (Exception $error) { echo $error->getMessage(), "\n"; }
                }
            }
            PHP;
        $warning = 'onewrite runs on Linux only: databases are in stock WAL here';
        $refusal = "$place->path: the connection does not use onewrite: onewrite runs on Linux only";
        $each = [$warning, 'bool(false)', $warning, 'wal2', $refusal, $warning, 'wal2', $refusal];
        same([...$each, ...$each], explode("\n", $place->printed($code)));
    },
];
