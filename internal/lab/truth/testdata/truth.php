<?php // a program of known truth for PHP: see the documentation of package truth

function hash_($n) { $h = 7; for ($i = 0; $i < $n; $i++) $h = ($h * 31 + $i) & 0xffffff; return $h; }
function price() { return hash_(60000); }
function reserve() { return hash_(30000) + 1; }
function tiny($a, $b) { return $a ^ $b; }
function count_() { $t = 0; for ($i = 0; $i < 15000; $i++) $t = tiny($t, $i); return $t; }
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
function recurse() { return fib(17); }
function sorting() { global $numbers, $compare; $sorted = $numbers; usort($sorted, $compare); return $sorted[7]; }
function closures() { global $numbers, $double; return array_sum(array_map($double, $numbers)); }
function regex() { global $text, $mark; return strlen(preg_replace_callback('/[0-9]+7/', $mark, $text)); }
function json() { global $numbers; return count(json_decode(json_encode($numbers), true)); }
function items($n) { for ($i = 0; $i < $n; $i++) yield $i; }
function twice($n) { yield from items($n); yield from items($n); }
function generators() { $t = 0; foreach (twice(5000) as $i) $t += $i; return $t; }
function fails($i) { if ($i % 2) throw new RangeException('no'); }
function exceptions() {
    for ($i = 0; $i < 4000; $i++) {
        try { fails($i); } catch (RangeException $e) { }
    }
}
class Box {
    private $n;
    function __construct($n) { $this->n = $n; }
    function add($n) { $this->n += $n; return $this; }
    static function of($n) { return new Box($n); }
    function __get($name) { return $this->n; }
    function __call($name, $arguments) { return $this->n + $arguments[0]; }
}
function boxes() { $t = 0; for ($i = 0; $i < 4000; $i++) $t += Box::of($i)->add($i)->value; return $t; }
function calls() { $t = 0; $box = new Box(3); for ($i = 0; $i < 6000; $i++) $t += $box->anything($i); return $t; }
function evals() { for ($i = 0; $i < 20; $i++) eval('hash_(500);'); }
function digest() { $t = 'x'; for ($i = 0; $i < 300; $i++) $t = md5(str_repeat($t, 20)); return $t; }

$compare = fn($a, $b) => $a <=> $b;
$double = function ($n) { return 2 * $n; };
$mark = function ($match) { return $match[0] . 'x'; };
$numbers = array_map(fn($i) => $i * 7919 % 3001, range(0, 2999));
$text = implode(' ', $numbers);
$phases = ['price', 'reserve', 'count_', 'recurse', 'sorting', 'closures', 'regex', 'json', 'generators', 'exceptions',
    'boxes', 'calls', 'evals', 'digest'];
$took = array_fill_keys($phases, 0);
$ended = false;
$end = function () use (&$ended) { $ended = true; };

function name($closure) { return (new ReflectionFunction($closure))->getName(); }
function clock() { $r = getrusage(); return ($r['ru_utime.tv_sec'] + $r['ru_stime.tv_sec']) * 1000000
    + $r['ru_utime.tv_usec'] + $r['ru_stime.tv_usec']; }
function work() {
    global $phases, $took, $ended;
    while (!$ended) {
        foreach ($phases as $phase) {
            $before = clock();
            $phase();
            $took[$phase] += clock() - $before;
        }
    }
}

pcntl_async_signals(true);
pcntl_signal(SIGTERM, $end);
echo "ready\n";
work();
$shares = array_map(fn($t) => $t / array_sum($took), $took);
$callers = ['{main}' => [''], 'work' => ['{main}'], 'clock' => ['work'], 'hash_' => ['price', 'reserve', 'evals'],
    'tiny' => ['count_'], 'fib' => ['fib', 'recurse'], 'twice' => ['generators'], 'items' => ['twice', 'generators'],
    'fails' => ['exceptions'], 'Box::of' => ['boxes'], 'Box::add' => ['boxes'], 'Box::__get' => ['boxes'],
    'Box::__construct' => ['Box::of', 'calls'], 'Box::__call' => ['calls', 'Box::anything'],
    'Box::anything' => ['calls']];
foreach ([[$compare, 'sorting'], [$double, 'closures'], [$mark, 'regex']] as [$closure, $by]) {
    $callers[name($closure)][] = $by;
}
$callers[name($end)] = [...($callers[name($end)] ?? []), ...array_keys($callers), ...$phases];
foreach ($phases as $phase) $callers[$phase] = ['work'];
echo json_encode(['file' => 'truth.php', 'work' => 'work', 'clock' => 'clock', 'thread' => getmypid(),
    'inclusive' => $shares, 'callers' => $callers,
    'self' => ['price' => 0]]);
