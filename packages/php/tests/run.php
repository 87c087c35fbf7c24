<?php

// Runs the tests: php run.php [FILE...]. The last line counts them.

declare(strict_types=1);

require __DIR__ . '/../autoload.php';
require __DIR__ . '/support.php';

set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    // An error that "@" silences.
    if ((error_reporting() & $level) === 0) {
        return false;
    }
    throw new ErrorException($text, 0, $level, $file, $line);
});

$passed = $failed = 0;
foreach (array_slice($argv, 1) ?: glob(__DIR__ . '/*_test.php') as $file) {
    foreach (require $file as $name => $test) {
        $place = new Place();
        try {
            $test($place);
            $passed++;
        } catch (Throwable $error) {
            $failed++;
            $where = basename($file);
            echo "FAILED: $where: $name\n  " . $error::class . ": {$error->getMessage()}\n{$error->getTraceAsString()}\n";
        } finally {
            unset($error);
            $place->remove();
        }
    }
}
echo "$passed passed, $failed failed\n";
exit($failed === 0 && $passed > 0 ? 0 : 1);
