<?php

/** For programs without Composer: `require` this file. */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'OneWrite\\')) {
        $file = __DIR__ . '/src/' . strtr(substr($class, strlen('OneWrite\\')), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
