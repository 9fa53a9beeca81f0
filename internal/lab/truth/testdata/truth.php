<?php // a program for PHP, whose functions have no names: see the documentation of package truth

function hashes() { $h = 7; for ($i = 0; $i < 50000; $i++) $h = ($h * 31 + $i) & 0xffffff; return $h; }
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
function sorting($numbers) { usort($numbers, fn($a, $b) => $a <=> $b); return $numbers[7]; }
function regex($text) { return strlen(preg_replace_callback('/[0-9]+7/', fn($m) => $m[0] . 'x', $text)); }
function json($value) { return count(json_decode(json_encode($value), true)); }
function items($n) { for ($i = 0; $i < $n; $i++) yield $i; }
function generators() { $t = 0; foreach (items(20000) as $i) $t += $i; return $t; }
function fails($i) { try { if ($i % 2) throw new RangeException('no'); } catch (RangeException $e) { return 1; } return 0; }
class Box {
    public function __construct(private int $n) {}
    public function add(int $n): Box { $this->n += $n; return $this; }
    public function value(): int { return $this->n; }
}
function boxes() { $t = 0; for ($i = 0; $i < 10000; $i++) $t += (new Box($i))->add($i)->value() + fails($i); return $t; }

$numbers = array_map(fn($i) => $i * 7919 % 3001, range(0, 2999));
$ended = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$ended) { $ended = true; });
echo "ready\n";
while (!$ended) {
    hashes();
    fib(18);
    sorting($numbers);
    regex(implode(' ', $numbers));
    json(['words' => $numbers, 'more' => [1.5, null, true]]);
    generators();
    boxes();
}
echo json_encode(['inclusive' => ['__libc_start_main' => 1], 'work' => '__libc_start_main', 'thread' => getmypid()]);
