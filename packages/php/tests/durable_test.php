<?php

// Kills, and stock tools.

declare(strict_types=1);

use OneWrite\OneWrite;

return [
    'a kill loses no commit, and stock SQLite is refused' => withEach(function (string $driver, string $path, Place $place) {
        $code = <<<'PHP'
            $db = opened($argv[1], $argv[2]);
            $db->exec('CREATE TABLE t(x)');
            for ($row = 0; ; $row++) {
                $db->exec("INSERT INTO t VALUES($row)");
                fwrite(STDOUT, "$row\n");
            }
            PHP;
        $child = $place->start($code, [$driver, $path]);
        for ($acknowledged = 0; $acknowledged < 50; $acknowledged++) {
            same((string) $acknowledged, $child->line());
        }
        $child->signal(SIGKILLED);
        // The last line may be cut short.
        $acknowledged += substr_count($child->end(0, SIGKILLED), "\n");

        $stock = $place->printed('
            try { (new PDO("sqlite:$argv[1]"))->query("SELECT count(*) FROM t"); echo "read"; }
            catch (PDOException $error) { echo $error->errorInfo[2]; }
        ', [$path]);
        same('file is not a database', $stock);

        $db = opened($driver, $path);
        $rows = one($db, 'SELECT count(*) FROM t');
        same(true, $rows >= $acknowledged, "$rows rows of $acknowledged");
        same($rows, one($db, 'SELECT count(*) FROM (SELECT x, row_number() OVER (ORDER BY rowid) AS n FROM t) WHERE x = n - 1'));
        same('ok', one($db, 'PRAGMA integrity_check'));
        OneWrite::check($db);
        unset($db);
        same((string) $rows, $place->printed('echo (new SQLite3($argv[1]))->querySingle("SELECT count(*) FROM t");', [$path]));
    }),
];
