<?php

// Commits with the installed package, and is killed; or reads back.
//
//   php commit.php DATABASE write    ends by SIGKILL
//   php commit.php DATABASE read     ends with 0 if each commit is there
//
// scripts/release installs the package and runs it, with PDO and with SQLite3.

declare(strict_types=1);

require 'OneWrite/autoload.php';

use OneWrite\OneWrite;

const ROWS = 50;

function expect(mixed $expected, mixed $found): void
{
    if ($expected !== $found) {
        throw new UnexpectedValueException(var_export($found, true) . ', not ' . var_export($expected, true));
    }
}

[, $file, $what] = $argv;
$db = OneWrite::connect($file);
$other = OneWrite::open($file);

if ($what === 'write') {
    $db->exec('CREATE TABLE t(x)');
    for ($row = 0; $row < ROWS; $row++) {
        expect('onewrite', OneWrite::check($row % 2 ? $db : $other)['mode']);
        ($row % 2 ? $db : $other)->exec("INSERT INTO t VALUES('a row')");
    }
    // Debian's PHP for the command line has posix_kill.
    posix_kill(getmypid(), 9);
}
expect(ROWS, $db->query("SELECT count(*) FROM t WHERE x = 'a row'")->fetchColumn());
expect(ROWS, $other->querySingle("SELECT count(*) FROM t WHERE x = 'a row'"));
expect('ok', $other->querySingle('PRAGMA integrity_check'));
OneWrite::check($other);
