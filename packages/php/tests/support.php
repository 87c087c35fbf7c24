<?php

// Helpers of the tests: assertions, a directory for each test, and processes that run PHP.

declare(strict_types=1);

use OneWrite\OneWrite;
use OneWrite\OneWriteException;

const ROOT = __DIR__ . '/../../..';
const PACKAGE = __DIR__ . '/..';
// A process that hangs fails after this.
const MOST_SECONDS = 120;
const SIGKILLED = 9;
const DRIVERS = ['PDO', 'SQLite3'];

function same(mixed $expected, mixed $found, string $what = ''): void
{
    if ($expected !== $found) {
        throw new LogicException("$what: expected " . var_export($expected, true) . ', found ' . var_export($found, true));
    }
}

/** Expects an exception of a class with this text, or with a match of this pattern. */
function throws(string $class, string $text, Closure $use): void
{
    try {
        $use();
    } catch (LogicException | RuntimeException | Exception $error) {
        same($class, $error::class, $error->getMessage());
        $isMatch = $text[0] === '~' ? preg_match($text, $error->getMessage()) === 1 : $text === $error->getMessage();
        $isMatch || throw new LogicException("expected $text, found {$error->getMessage()}");
        return;
    }
    throw new LogicException("nothing was thrown, expected $class: $text");
}

function fails(string $text, Closure $use): void
{
    throws(OneWriteException::class, $text, $use);
}

/** Opens with either driver by its helper. */
function opened(string $driver, string $path, ?string $mode = null, string $synchronous = 'FULL', int $seconds = 60): PDO|SQLite3
{
    return $driver === 'PDO'
        ? OneWrite::connect($path, $mode, $synchronous, [PDO::ATTR_TIMEOUT => $seconds])
        : OneWrite::open($path, $mode, $synchronous, timeout: $seconds * 1000);
}

/** The first value of the first row. */
function one(PDO|SQLite3 $db, string $sql): mixed
{
    return $db instanceof PDO ? $db->query($sql)->fetchColumn() : $db->querySingle($sql);
}

function commitARow(PDO|SQLite3 $db): void
{
    $db->exec('CREATE TABLE IF NOT EXISTS t(x)');
    $db->exec('INSERT INTO t VALUES(1)');
}

/** How many calls made five commits durable. The first one is not counted: its level is new. */
function durableCalls(PDO|SQLite3 $db): int
{
    $counts = [];
    for ($commit = 0; $commit <= 5; $commit++) {
        $db->exec('INSERT INTO t VALUES(1)');
        $status = OneWrite::check($db, synchronous: 'OFF');
        $counts[] = $status['flushes'] + $status['write_through'];
    }
    return end($counts) - $counts[0];
}

/** Runs a test once with each driver. */
function withEach(Closure $test): Closure
{
    return static function (Place $place) use ($test): void {
        foreach (DRIVERS as $driver) {
            $path = "$place->directory/$driver";
            $test($driver, $path, $place);
        }
    };
}

/** A directory with a database in it. */
final class Place
{
    public readonly string $directory;
    public readonly string $path;
    /** @var list<Child> */
    private array $children = [];

    public function __construct()
    {
        $this->directory = realpath(sys_get_temp_dir()) . '/onewrite-' . bin2hex(random_bytes(8));
        mkdir($this->directory, 0700);
        $this->path = "$this->directory/app.db";
    }

    /** A process that runs PHP code, which has the package and `$argv`. Code with "<?php" runs as it is. */
    public function start(string $code, array $arguments = [], array $ini = [], array $variables = []): Child
    {
        $file = "$this->directory/" . count($this->children) . '.php';
        $support = var_export(__FILE__, true);
        $autoload = var_export(realpath(PACKAGE . '/autoload.php'), true);
        $head = "<?php require $autoload; require $support; use OneWrite\\OneWrite;\n";
        file_put_contents($file, (str_starts_with($code, '<?php') ? '' : $head) . $code);
        return $this->children[] = new Child($this->directory, $file, $arguments, $ini, $variables);
    }

    /** The output of such a process, which must succeed. */
    public function printed(string $code, array $arguments = [], array $ini = [], array $variables = []): string
    {
        return rtrim($this->start($code, $arguments, $ini, $variables)->end(0));
    }

    /**
     * A stock connection, which prints the last answer and stays open. It is of a process that has not loaded
     * onewrite, because that may be the default here.
     */
    public function stock(string ...$sql): Child
    {
        $code = <<<'PHP'
            $db = new SQLite3($argv[1]);
            $db->enableExceptions(true);
            foreach (array_slice($argv, 2) as $sql) { $answer = $db->querySingle($sql); }
            echo $answer, "\n";
            fgets(STDIN);
            PHP;
        return $this->start($code, [$this->path, ...$sql]);
    }

    public function remove(): void
    {
        foreach ($this->children as $child) {
            $child->kill();
        }
        $entries = new RecursiveIteratorIterator(
            new RecursiveDirectoryIterator($this->directory, FilesystemIterator::SKIP_DOTS),
            RecursiveIteratorIterator::CHILD_FIRST,
        );
        foreach ($entries as $entry) {
            $entry->isDir() && !$entry->isLink() ? rmdir((string) $entry) : unlink((string) $entry);
        }
        rmdir($this->directory);
    }
}

final class Child
{
    /** @var resource|null */
    private $process;
    /** @var array<int, resource> */
    private array $pipes = [];
    private readonly string $errors;
    private string $read = '';
    private readonly float $end;

    public function __construct(string $directory, string $file, array $arguments, array $ini, array $variables)
    {
        $this->errors = "$file.errors";
        $this->end = microtime(true) + MOST_SECONDS;
        $command = [PHP_BINARY, '-d', 'display_errors=stderr', '-d', 'log_errors=0'];
        foreach ($ini as $name => $value) {
            array_push($command, '-d', "$name=$value");
        }
        // The helpers set these here, and children must not inherit them.
        $environment = array_diff_key(getenv(), array_flip(['ONEWRITE_UPGRADE_WAL', 'ONEWRITE_MAKE_DEFAULT']));
        $environment = array_filter([...$environment, ...$variables], is_string(...));
        $pipes = [['pipe', 'r'], ['pipe', 'w'], ['file', $this->errors, 'w']];
        $words = [...$command, $file, ...array_map(strval(...), $arguments)];
        $this->process = proc_open($words, $pipes, $this->pipes, $directory, $environment) ?: null;
        $this->process !== null || throw new LogicException('cannot start PHP');
    }

    /** Waits for output. Returns whether there may be more. */
    private function more(): bool
    {
        $readable = [$this->pipes[1]];
        $none = null;
        $seconds = max(0, (int) ceil($this->end - microtime(true)));
        if (!stream_select($readable, $none, $none, $seconds)) {
            $this->kill();
            throw new LogicException('a process hangs: ' . $this->errors());
        }
        $bytes = (string) fread($this->pipes[1], 1 << 16);
        $this->read .= $bytes;
        return $bytes !== '';
    }

    public function line(): string
    {
        while (!str_contains($this->read, "\n")) {
            $this->more() || throw new LogicException("a process ended: $this->read" . $this->errors());
        }
        [$line, $this->read] = explode("\n", $this->read, 2);
        return $line;
    }

    /** Lets a process go on that waits for a line. */
    public function go(): void
    {
        fwrite($this->pipes[0], "\n");
    }

    public function signal(int $signal): void
    {
        proc_terminate($this->process, $signal);
    }

    /** The rest of the output of a process that must end with this code, or by this signal. */
    public function end(int $code, int $signal = 0): string
    {
        fclose($this->pipes[0]);
        while ($this->more()) {
        }
        while (($status = proc_get_status($this->process))['running']) {
            microtime(true) < $this->end || throw new LogicException('a process hangs');
            usleep(1000);
        }
        proc_close($this->process);
        $this->process = null;
        same($signal, $status['signaled'] ? $status['termsig'] : 0, $this->read . $this->errors());
        $signal !== 0 || same($code, $status['exitcode'], $this->read . $this->errors());
        return $this->read;
    }

    private function errors(): string
    {
        return (string) file_get_contents($this->errors);
    }

    public function kill(): void
    {
        if ($this->process !== null) {
            $this->signal(SIGKILLED);
            proc_close($this->process);
            $this->process = null;
        }
    }
}
