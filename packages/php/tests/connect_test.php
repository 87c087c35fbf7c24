<?php

// connect, open and uri.

declare(strict_types=1);

use OneWrite\OneWrite;

return [
    'one line opens in the mode at FULL' => withEach(function (string $driver, string $path) {
        $db = opened($driver, $path);
        commitARow($db);
        $status = OneWrite::check($db);
        same(['onewrite', true], [$status['mode'], $status['guarded']]);
        same(OneWrite::VERSION, $status['version']);
        same(2, one($db, 'PRAGMA synchronous'));
        same($driver, $db::class);
        same(true, $status['writes'] > 0);
    }),

    'a database keeps the mode that it remembers' => withEach(function (string $driver, string $path) {
        foreach (OneWrite::MODES as $mode) {
            opened($driver, "$path $mode", $mode);
            same($mode, OneWrite::check(opened($driver, "$path $mode"))['mode']);
            same('onewrite', OneWrite::check(opened($driver, "$path $mode", 'onewrite'))['mode']);
        }
    }),

    'every mode and level' => withEach(function (string $driver, string $path) {
        foreach (OneWrite::MODES as $mode) {
            foreach (['OFF', 'normal', 'FULL', 'EXTRA'] as $level) {
                $db = opened($driver, "$path $mode $level", strtoupper($mode), $level);
                commitARow($db);
                same($mode, OneWrite::check($db, $mode, $level)['mode']);
            }
        }
    }),

    'a database that one driver leaves open is shared with the other' => function (Place $place) {
        $first = OneWrite::connect($place->path);
        commitARow($first);
        $second = OneWrite::open($place->path);
        commitARow($second);
        same(2, one($first, 'SELECT count(*) FROM t'));
        OneWrite::check($first);
        OneWrite::check($second);
    },

    'a stock database is taken over, and is stock again after the last close' => withEach(
        function (string $driver, string $path, Place $place) {
            $name = basename($path);
            $stock = "\$db = new SQLite3('$name'); \$db->exec('CREATE TABLE IF NOT EXISTS t(x)');"
                . "echo \$db->querySingle('SELECT count(*) FROM t');";
            same('0', $place->printed($stock));
            $db = opened($driver, $path);
            commitARow($db);
            unset($db);
            same('1', $place->printed($stock));
            same(1, one(opened($driver, $path), 'SELECT count(*) FROM t'));
        }
    ),

    'names of all kinds' => function (Place $place) {
        mkdir("$place->directory/a b");
        chdir($place->directory);
        foreach (['a b/c?d#e%20f&g=h.db', 'über.db', '+x y.db', './file:x.db'] as $name) {
            foreach (DRIVERS as $driver) {
                foreach ([$name, "/$place->directory/$name"] as $path) {
                    $isMeantAsUri = str_contains($name, '=');
                    if (!$isMeantAsUri) {
                        commitARow(opened($driver, $path));
                    } elseif ($driver === 'PDO') {
                        commitARow(OneWrite::connect('file:' . implode('/', array_map('rawurlencode', explode('/', $name)))));
                    }
                    same(true, file_exists($name), $path);
                }
            }
        }
        $made = array_filter(scandir('.'), fn (string $name) => !preg_match('~^\.|-onewrite$~', $name));
        same(['+x y.db', 'a b', 'file:x.db', 'über.db'], array_values($made));
        chdir('/');
    },

    'a URI keeps its parameters' => function (Place $place) {
        $db = OneWrite::connect("file:$place->path?journal_mode=waldio&onewrite_group_commit=on#fragment");
        same(['waldio', 'on'], [OneWrite::check($db)['mode'], OneWrite::check($db)['group_commit']]);
        commitARow($db);
        $reader = OneWrite::connect("file:$place->path?mode=ro");
        same(1, one($reader, 'SELECT count(*) FROM t'));
        unset($db, $reader);
        fails("~^file:.*app.db\?onewrite_synk=full: $place->path: unknown URI parameter onewrite_synk~", fn () => OneWrite::connect("file:$place->path?onewrite_synk=full"));
    },

    'names with parameters are refused where the driver would make a file of that name' => function (Place $place) {
        chdir($place->directory);
        foreach (['app.db?vfs=onewrite', 'app.db?x=y', 'file:app.db?vfs=onewrite', 'file:app.db'] as $name) {
            throws(
                InvalidArgumentException::class,
                "SQLite3 takes no URIs, and would make a file that is named $name: give the path alone, or use OneWrite::connect",
                fn () => OneWrite::open($name),
            );
        }
        throws(
            InvalidArgumentException::class,
            'app.db?x=y has parameters, but no "file:", so it names a file: use file:app.db?x=y',
            fn () => OneWrite::connect('app.db?x=y'),
        );
        same(['.', '..'], scandir('.'));
        chdir('/');
    },

    'names with the prefix of a driver are refused' => withEach(function (string $driver, string $path, Place $place) {
        chdir($place->directory);
        foreach ([
            'sqlite:w.db' => 'w.db',
            'SQLite3:w.db' => 'w.db',
            'sqlite:/a/w.db' => '/a/w.db',
            'sqlite:w.db?mode=ro' => 'file:w.db?mode=ro',
            'sqlite:file:w.db?mode=ro' => 'file:w.db?mode=ro',
        ] as $name => $usable) {
            $text = "$name has the prefix of a driver, so it names a file: use $usable";
            throws(InvalidArgumentException::class, $text, fn () => opened($driver, $name));
            throws(InvalidArgumentException::class, $text, fn () => OneWrite::uri($name));
        }
        same([], array_diff(scandir('.'), ['.', '..']));
        commitARow(opened($driver, './sqlite:w.db'));
        same(true, file_exists('sqlite:w.db'));
        array_map(unlink(...), glob('sqlite:w.db*'));
        chdir('/');
    }),

    'an error has no words of SQLite for how it was found' => withEach(function (string $driver, string $path, Place $place) {
        $code = '$db = opened($argv[1], $argv[2]); commitARow($db); echo "committed\n"; sleep(60);';
        $child = $place->start($code, [$driver, $path]);
        same('committed', $child->line());
        $child->signal(SIGKILLED);
        $child->end(0, SIGKILLED);
        rename("$path-onewrite", "$path-lost");
        fails("~^$path: $path-onewrite: the database.s newest~", fn () => opened($driver, $path));
    }),

    'wrong words are loud' => withEach(function (string $driver, string $path, Place $place) {
        $wrong = InvalidArgumentException::class;
        throws($wrong, "unknown mode 'wladio': it is one of onewrite, waldio, swal, direct", fn () => opened($driver, $path, 'wladio'));
        throws($wrong, "unknown synchronous 'FUL': it is one of OFF, NORMAL, FULL, EXTRA", fn () => opened($driver, $path, null, 'FUL'));
        throws($wrong, 'the path has a NUL byte', fn () => opened($driver, "$path\0x"));
        foreach (['vfs=unix', 'journal_mode=direct'] as $parameter) {
            throws($wrong, "~names $parameter, and onewrite is asked for$~", fn () => OneWrite::connect("file:$path?$parameter", 'onewrite'));
        }
        throws($wrong, "~unknown mode 'delete'~", fn () => OneWrite::connect("file:$path?journal_mode=delete"));
        same(['.', '..'], scandir($place->directory));
    }),

    'a database in memory has no journal' => withEach(function (string $driver) {
        foreach ([':memory:', '', 'sqlite::memory:', 'sqlite:', 'file::memory:', 'file:x?mode=memory&cache=shared'] as $path) {
            fails('a database in memory has no journal: open it with the driver', fn () => opened($driver, $path));
        }
    }),

    'a file that cannot be opened is named, with the way out' => withEach(
        function (string $driver, string $path, Place $place) {
            $missing = "$place->directory/not here";
            $wayOut = "unable to open database file: there is no directory $missing: make it first";
            fails("$missing/app.db: $wayOut", fn () => opened($driver, "$missing/app.db"));
            if ($driver === 'PDO') {
                $uri = "file:$place->directory/not%20here/app.db?mode=rwc";
                fails("$uri: $wayOut", fn () => OneWrite::connect($uri));
            }
            fails(
                "$place->directory: unable to open database file: $place->directory is a directory: name a file in it",
                fn () => opened($driver, $place->directory),
            );
            file_put_contents($path, str_repeat('no database ', 1000));
            fails("$path: file is not a database", fn () => opened($driver, $path));
        }
    ),

    'a stock connection in the way is named' => function (Place $place) {
        $stock = $place->stock('CREATE TABLE t(x)', 'PRAGMA journal_mode=WAL', 'SELECT count(*) FROM t');
        same('0', $stock->line());
        foreach (DRIVERS as $driver) {
            $text = "~^$place->path: cannot change into onewrite mode: .*another connection~s";
            fails($text, fn () => opened($driver, $place->path, seconds: 0));
        }
        $stock->go();
        $stock->end(0);
        foreach (DRIVERS as $driver) {
            OneWrite::check(opened($driver, $place->path));
        }
    },

    'a connection in the way is waited for' => withEach(function (string $driver, string $path, Place $place) {
        $code = <<<'PHP'
            $db = new SQLite3($argv[1]);
            $db->exec('CREATE TABLE t(x); BEGIN IMMEDIATE');
            echo "begun\n";
            usleep(300_000);
            $db->exec('ROLLBACK');
            PHP;
        $stock = $place->start($code, [$path]);
        same('begun', $stock->line());
        OneWrite::check(opened($driver, $path));
        $stock->end(0);
    }),

    'the error mode and the options of PDO stay' => function (Place $place) {
        $options = [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_SILENT,
            PDO::ATTR_STRINGIFY_FETCHES => true,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_OBJ,
            PDO::ATTR_PERSISTENT => true,
        ];
        foreach ([1, 2] as $_) {
            $db = OneWrite::connect($place->path, options: $options);
            OneWrite::check($db);
            same(PDO::ERRMODE_SILENT, $db->getAttribute(PDO::ATTR_ERRMODE));
            same(false, $db->query('no SQL'));
            unset($db);
        }
        $other = new PDO("sqlite:file:$place->path", null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_SILENT]);
        $other->exec('PRAGMA synchronous=OFF');
        fails('~synchronous is OFF~', fn () => OneWrite::check($other));
        same(PDO::ERRMODE_SILENT, $other->getAttribute(PDO::ATTR_ERRMODE));
    },

    'the handle of SQLite3 throws, and takes flags' => function (Place $place) {
        commitARow(OneWrite::open($place->path));
        $reader = OneWrite::open($place->path, flags: SQLITE3_OPEN_READONLY);
        same(1, one($reader, 'SELECT count(*) FROM t'));
        same(5000, one($reader, 'PRAGMA busy_timeout'));
        throws(Exception::class, '~readonly database~', fn () => $reader->exec('DELETE FROM t'));
    },

    'processes that all open a new database at once' => withEach(function (string $driver, string $path, Place $place) {
        $code = <<<'PHP'
            echo "ready\n";
            fgets(STDIN);
            $db = opened($argv[1], $argv[2]);
            $db->exec('CREATE TABLE IF NOT EXISTS t(x)');
            $db->exec('INSERT INTO t VALUES(1)');
            OneWrite::check($db);
            PHP;
        $children = array_map(fn () => $place->start($code, [$driver, $path]), range(1, 6));
        foreach ($children as $child) {
            same('ready', $child->line());
        }
        foreach ($children as $child) {
            $child->go();
        }
        foreach ($children as $child) {
            $child->end(0);
        }
        $db = opened($driver, $path);
        same(6, one($db, 'SELECT count(*) FROM t'));
        same('onewrite', OneWrite::check($db)['mode']);
    }),

    'a URI for other code' => function (Place $place) {
        OneWrite::load();
        $db = new PDO('sqlite:' . OneWrite::uri($place->path));
        commitARow($db);
        same('onewrite', OneWrite::check($db)['mode']);
        same("file:/a%20b/%3F%23?vfs=onewrite&journal_mode=swal", OneWrite::uri('//a b/?#', 'swal'));
        same('file:x?vfs=onewrite', OneWrite::uri('x', null));
    },
];
