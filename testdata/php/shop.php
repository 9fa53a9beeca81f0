<?php
// One request of a shop, from the command line or by FastCGI. It prints what it sent, as JSON.
//
//   php shop.php SOCKET [fork]     with fork, a child records as well
//
// As FPM's script it takes the socket from the parameter OPENCENSUS_SOCKET.

declare(strict_types=1);

namespace Shop;

require __DIR__ . '/opencensus.php';

final class Cart
{
    public function __construct(private Tracer $tracer)
    {
    }

    public function find(): int
    {
        return $this->tracer->inSpan('sql.query', 'CLIENT', ['db.rows' => 3, 'db.statement' => 'SELECT 1'], function () {
            usleep(1000);
            return 3;
        });
    }
}

$client = new Client($_SERVER['OPENCENSUS_SOCKET'] ?? $argv[1]);
$client->setReportingPeriod(1.0);
$client->createMeasure(false, 'shop/requests', 'requests served', '1');
$client->createMeasure(true, 'shop/latency', 'time taken', 'ms');
$client->registerViews([
    ['shop/requests', 'requests by route', ['route'], 'shop/requests', 2, []],
    ['shop/latency', 'time by route', ['route'], 'shop/latency', 3, [1.0, 10.0, 100.0]],
    ['shop/calls', 'calls', [], 'shop/latency', 1, []],
    ['shop/last', 'last time', [], 'shop/latency', 4, []],
]);

$tracer = new Tracer($client, bin2hex(random_bytes(16)));
$rows = $tracer->inSpan('/cart?user=7', 'SERVER', ['http.status_code' => 200], fn () => (new Cart($tracer))->find());
$spans = $tracer->summary();
$client->record(['shop/requests' => 1, 'shop/latency' => 12.5], ['route' => '/cart'], [
    'trace_id' => $tracer->traceId, 'span_id' => $spans[0]['spanId'],
]);

$child = 0;
if (($argv[2] ?? '') === 'fork') {
    $child = pcntl_fork();
    $client->record(['shop/requests' => 10], ['route' => '/fork']); // both do
    if ($child === 0) {
        posix_kill(getmypid(), SIGKILL); // without the shutdown functions: it would export the same spans
    }
    pcntl_waitpid($child, $status);
}
echo json_encode(['pid' => getmypid(), 'traceId' => $tracer->traceId, 'spans' => $spans, 'rows' => $rows]), "\n";
