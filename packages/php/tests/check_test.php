<?php

// check.

declare(strict_types=1);

use OneWrite\OneWrite;

return [
    'another VFS' => function (Place $place) {
        // In a process where onewrite is not the default.
        $code = <<<'PHP'
            foreach ([new PDO("sqlite:$argv[1]"), new SQLite3($argv[1])] as $db) {
                try { OneWrite::check($db); } catch (Exception $error) { echo $error->getMessage(), "\n"; }
            }
            PHP;
        $text = "$place->path: the connection does not use onewrite: SQLite opened it with another VFS; use "
            . 'OneWrite::connect or OneWrite::open, or call OneWrite::load and open OneWrite::uri with PDO';
        same("$text\n$text", $place->printed($code, [$place->path]));
        foreach ([new PDO('sqlite::memory:'), new SQLite3(':memory:')] as $db) {
            fails('~^a database in memory: the connection does not use onewrite~', fn () => OneWrite::check($db));
        }
    },

    'another mode' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path, 'waldio');
        fails("$path: the database is in waldio mode, not in onewrite", fn () => OneWrite::check($db, 'onewrite'));
        throws(InvalidArgumentException::class, "~unknown mode 'wal'~", fn () => OneWrite::check($db, 'wal'));
    }),

    'a mode of SQLite' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path);
        same('delete', one($db, 'PRAGMA journal_mode=delete'));
        fails("$path: the database is in delete mode, not in one of onewrite", fn () => OneWrite::check($db));
    }),

    'a level that was set afterwards' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path);
        $db->exec('PRAGMA synchronous=NORMAL');
        fails("$path: synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL", fn () => OneWrite::check($db));
        OneWrite::check($db, synchronous: 'NORMAL');
        fails('~synchronous is FULL, not EXTRA~', fn () => OneWrite::check(opened($driver, $path), null, 'EXTRA'));
    }),

    // SQLite3 takes no URIs, and says it by a pragma.
    'a program that says NORMAL commits at FULL above a floor' => withEach(function (string $driver, string $path) {
        foreach (OneWrite::MODES as $mode) {
            foreach (['full', 'extra'] as $level) {
                $floor = "onewrite_synchronous=$level";
                $name = "$path $mode $level";
                $db = opened($driver, $driver === 'PDO' ? 'file:' . rawurlencode($name) . "?$floor" : $name, $mode);
                $driver === 'PDO' || $db->exec("PRAGMA $floor");
                commitARow($db);
                $db->exec('PRAGMA synchronous=NORMAL');
                same($level, OneWrite::check($db, $mode, $level)['synchronous']);
                same(true, durableCalls($db) >= 5, "durable commits of $driver in $mode");
            }
        }
    }),

    'a pragma sets the floor of an open connection' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path);
        commitARow($db);
        $db->exec('PRAGMA synchronous=NORMAL');
        same(0, durableCalls($db));
        $db->exec('PRAGMA onewrite_synchronous=full');
        same('full', OneWrite::check($db)['synchronous']);
        same(true, durableCalls($db) >= 5, "durable commits of $driver");
    }),

    'the environment sets the floor of each connection' => function (Place $place) {
        $code = <<<'PHP'
            foreach (DRIVERS as $driver) {
                $db = opened($driver, "$argv[1] $driver");
                commitARow($db);
                $db->exec('PRAGMA synchronous=NORMAL');
                echo OneWrite::check($db, synchronous: 'OFF')['synchronous'], ' ', durableCalls($db) >= 5 ? 'durable' : 'not', "\n";
            }
            PHP;
        $floor = ['ONEWRITE_SYNCHRONOUS' => 'full'];
        same("full durable\nfull durable", $place->printed($code, ["$place->path a"], variables: $floor));
        same("normal not\nnormal not", $place->printed($code, ["$place->path b"]));
    },

    'settings that lose commits' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path);
        one($db, 'PRAGMA onewrite_sync=normal');
        fails("~^$path: onewrite_sync=normal lets a power cut lose commits~", fn () => OneWrite::check($db));
        $db = opened($driver, "$path groups", 'waldio');
        one($db, "PRAGMA onewrite_group_synch='4,2'");
        fails('~onewrite_group_synch=4,2 lets a power cut~', fn () => OneWrite::check($db, 'waldio'));
    }),

    'a URI that became the name of a file' => function (Place $place) {
        $code = <<<'PHP'
            if ($argv[1] !== '') { OneWrite::load(true); }
            $handles = [
                fn () => new SQLite3('file:app.db?vfs=onewrite'),
                fn () => new PDO('sqlite:app.db?vfs=onewrite&journal_mode=onewrite'),
            ];
            foreach ($handles as $open) {
                $db = $open();
                $db->exec('PRAGMA journal_mode=onewrite');
                try { OneWrite::check($db); } catch (Exception $error) { echo $error->getMessage(), "\n"; }
            }
            PHP;
        foreach (['', 'default'] as $load) {
            $said = explode("\n", $place->printed($code, [$load]));
            same(2, count($said));
            foreach (['file:app.db?vfs=onewrite', 'app.db?vfs=onewrite&journal_mode=onewrite'] as $at => $name) {
                same("$place->directory/$name: the database is a file that is named $name, because the driver took the URI "
                    . 'for a name: open it by its path alone, or with PDO as sqlite:file:...', $said[$at]);
            }
        }
    },

    'a program that asks for WAL keeps the mode' => withEach(function (string $driver, string $path) {
        foreach (OneWrite::MODES as $mode) {
            // The second connection does not name it: the database remembers.
            foreach ([$mode, null] as $named) {
                $db = opened($driver, "$path $mode", $named);
                same('wal', one($db, 'PRAGMA journal_mode=WAL'));
                commitARow($db);
                OneWrite::check($db, $mode);
            }
        }
    }),

    'the reason of a mode that is kept out' => function (Place $place) {
        $db = OneWrite::connect($place->path);
        commitARow($db);
        unset($db);
        $stock = $place->stock('SELECT count(*) FROM t');
        same('1', $stock->line());
        $db = new PDO("sqlite:file:$place->path?vfs=onewrite", null, null, [PDO::ATTR_TIMEOUT => 0]);
        one($db, 'SELECT count(*) FROM t');
        fails('~is not in onewrite mode: .*stock SQLite~', fn () => OneWrite::check($db));
        fails('~cannot change into onewrite mode.*stock SQLite~', fn () => OneWrite::connect($place->path, options: [PDO::ATTR_TIMEOUT => 0]));
    },
];
