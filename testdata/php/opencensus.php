<?php
// A client of the OpenCensus daemon protocol that behaves as the pure PHP one of the library does: one persistent
// connection of the process, a sequence that begins with each request, no wait for anybody.
//
// A message is SOM (4 zero bytes), type (1 byte), sequence number, process id, thread id (varints), time in seconds
// (binary64, big endian), length of the payload (varint), payload. All texts have a varint as length in front.

declare(strict_types=1);

namespace Shop;

final class Client
{
    private const SEND_SECONDS = 0.005;

    private $socket;
    private int $sequence = 0;

    public function __construct(string $path)
    {
        $this->socket = pfsockopen('unix://' . $path, -1, $code, $text, 0.0);
        if ($this->socket === false) {
            throw new \RuntimeException("$text [$code]");
        }
        stream_set_blocking($this->socket, false);
        $this->send(3, "\x01" . self::text(PHP_VERSION) . self::text(zend_version()));
        register_shutdown_function(fn () => $this->send(4, '')); // before what the tracer registers
    }

    public function createMeasure(bool $isFloat, string $name, string $description, string $unit): void
    {
        $this->send(40, chr($isFloat ? 2 : 1) . self::text($name) . self::text($description) . self::text($unit));
    }

    public function setReportingPeriod(float $seconds): void
    {
        $this->send(41, pack('E', $seconds));
    }

    // Each view is [name, description, tag keys, measure, aggregation, boundaries].
    public function registerViews(array $views): void
    {
        $payload = self::varint(count($views));
        foreach ($views as [$name, $description, $keys, $measure, $aggregation, $boundaries]) {
            $payload .= self::text($name) . self::text($description) . self::texts($keys) . self::text($measure)
                . self::varint($aggregation);
            if ($aggregation === 3) {
                $payload .= self::varint(count($boundaries)) . pack('E*', ...$boundaries);
            }
        }
        $this->send(42, $payload);
    }

    public function unregisterViews(array $names): void
    {
        $this->send(43, self::texts($names));
    }

    // An int is a value of an integer measure, a float one of a float measure.
    public function record(array $values, array $tags = [], array $attachments = []): void
    {
        $payload = self::varint(count($values));
        foreach ($values as $measure => $value) {
            $payload .= self::text($measure) . (is_int($value) ? "\x01" . self::varint($value) : "\x02" . pack('E', $value));
        }
        $this->send(44, $payload . self::pairs($tags) . self::pairs($attachments));
    }

    public function export(array $spans): void
    {
        $this->send(20, (string) json_encode($spans)); // '' if it fails
    }

    // What does not fit in time, or without waiting, is never sent.
    private function send(int $type, string $payload): void
    {
        $message = "\0\0\0\0" . chr($type) . self::varint(++$this->sequence) . self::varint(getmypid()) . self::varint(0)
            . pack('E', microtime(true)) . self::varint(strlen($payload)) . $payload;
        $end = microtime(true) + self::SEND_SECONDS;
        while ($message !== '' && microtime(true) < $end) {
            $written = @fwrite($this->socket, $message);
            if ($written === false || $written === 0) {
                return;
            }
            $message = substr($message, $written);
        }
    }

    private static function varint(int $number): string
    {
        $bytes = '';
        for (; $number >= 0x80; $number >>= 7) {
            $bytes .= chr($number & 0x7f | 0x80);
        }
        return $bytes . chr($number);
    }

    private static function text(string $text): string
    {
        return self::varint(strlen($text)) . $text;
    }

    private static function texts(array $texts): string
    {
        return self::varint(count($texts)) . implode('', array_map([self::class, 'text'], $texts));
    }

    private static function pairs(array $pairs): string
    {
        $bytes = self::varint(count($pairs));
        foreach ($pairs as $key => $value) {
            $bytes .= self::text((string) $key) . self::text($value);
        }
        return $bytes;
    }
}

final class Tracer
{
    private array $spans = [];
    private array $open = [];

    public function __construct(private Client $client, public readonly string $traceId)
    {
        register_shutdown_function(fn () => $this->client->export($this->spans));
    }

    public function inSpan(string $name, string $kind, array $attributes, callable $function): mixed
    {
        $index = count($this->spans);
        $this->spans[] = [
            'traceId' => $this->traceId,
            'spanId' => dechex(random_int(1, 0x7fffffff)),
            'parentSpanId' => $this->open ? $this->spans[end($this->open)]['spanId'] : null,
            'name' => $name,
            'kind' => $kind,
            'stackTrace' => $this->open ? self::frames() : [],
            'startTime' => new \DateTimeImmutable('now', new \DateTimeZone('UTC')),
            'endTime' => null,
            'status' => null,
            'attributes' => array_map('strval', $attributes),
            'timeEvents' => [],
            'links' => [],
            'sameProcessAsParentSpan' => true,
        ];
        $this->open[] = $index;
        try {
            return $function();
        } finally {
            array_pop($this->open);
            $this->spans[$index]['endTime'] = new \DateTimeImmutable('now', new \DateTimeZone('UTC'));
        }
    }

    private static function frames(): array
    {
        $frames = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
        return array_values(array_filter($frames, fn ($frame) => ($frame['class'] ?? '') !== self::class));
    }

    // What the receiver must know of the spans, in order.
    public function summary(): array
    {
        return array_map(fn ($span) => array_intersect_key(
            $span,
            array_flip(['name', 'kind', 'spanId', 'parentSpanId', 'attributes']),
        ), $this->spans);
    }
}
