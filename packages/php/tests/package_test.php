<?php

// The package is what its files say, and the examples of the documents run as they stand there.

declare(strict_types=1);

use OneWrite\OneWrite;

const MOST_LINES = 10;

/** The examples in PHP below a heading. */
function examples(string $file, string $after): array
{
    $text = explode($after, file_get_contents(ROOT . "/$file"), 2)[1];
    preg_match_all('~```php\n(.*?)```~s', explode("\n## ", $text)[0], $found);
    return $found[1];
}

return [
    'versions are the same' => function () {
        preg_match('~^version = "(.+)"~m', file_get_contents(ROOT . '/Cargo.toml'), $found);
        same($found[1], OneWrite::VERSION);
        same($found[1], json_decode(file_get_contents(PACKAGE . '/composer.json'), true)['version']);
    },

    'Composer finds each class where it is' => function () {
        $places = json_decode(file_get_contents(PACKAGE . '/composer.json'), true)['autoload']['psr-4'];
        same(['OneWrite\\' => 'src/'], $places);
        foreach (glob(PACKAGE . '/src/*.php') as $file) {
            same(true, class_exists('OneWrite\\' . basename($file, '.php')), $file);
        }
    },

    'the examples run' => function (Place $place) {
        [$example, $bare] = examples('docs/languages.md', "\n## PHP\n");
        same([$example], examples('packages/php/README.md', '# onewrite'));
        copy(OneWrite::loadablePath(), "$place->directory/libonewrite.so");
        symlink(realpath(PACKAGE), "$place->directory/OneWrite");
        $library = ['ONEWRITE_EXTENSION_LIBRARY' => "$place->directory/libonewrite.so"];
        foreach ([$example => [], $bare => ['sqlite3.extension_dir' => $place->directory]] as $text => $ini) {
            same(true, substr_count($text, "\n") <= MOST_LINES, $text);
            $code = "<?php\n$text\nrequire_once 'OneWrite/autoload.php';\necho OneWrite\\OneWrite::check(\$db)['mode'];";
            same('onewrite', $place->printed($code, [], [...$ini, 'include_path' => $place->directory], $library));
        }
    },
];
