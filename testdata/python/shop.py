"""A shop that says by OpenTelemetry's standards who it is and what it works on, with a known truth.

    shop.py LIBRARY SERVICE ENVIRONMENT

The library is that of ../otel/publisher.h. Commands on standard input, one a line: "serve" has a
thread serve requests until "end"; "quit", or the end of the input, ends the program. Events are
lines of JSON, as those of the demo process of ../agent. Each request is a transaction of 0.6 s of CPU
time, for which a served event says which route it had and how much CPU time its functions took.
"""

import ctypes
import json
import math
import os
import random
import sys
import threading
import time

MS = 1_000_000
CART = (3, 14, 15, 92, 65, 35, 89, 79)
ROUTES = ("/orders", "/orders/:id")

LOCAL_ROOT_SPAN, HTTP_ROUTE = 0, 1
KEYS = "datadog.local_root_span_id,http.route"


class Publisher:
    """What is published: who the process is, and what the calling thread works on."""

    def __init__(self, library):
        functions = ctypes.CDLL(library)
        for name, result, arguments in (
            ("otel_publish", ctypes.c_char_p, [ctypes.c_char_p] * 3),
            ("otel_attach", ctypes.c_char_p, [ctypes.c_char_p, ctypes.c_size_t]),
            ("otel_detach", None, []),
        ):
            function = getattr(functions, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def publish(self, service, environment):
        resource = {
            "service.name": service,
            "service.version": "1.0",
            "service.instance.id": f"{service}-{os.getpid()}",
            "deployment.environment.name": environment,
            "telemetry.sdk.name": "demo",
            "telemetry.sdk.language": "python",
        }
        lines = "\n".join(f"{key}={value}" for key, value in resource.items())
        must(self.otel_publish(lines.encode(), b"tlsdesc_v1_dev", KEYS.encode()))

    def attach(self, trace_id, span_id, attributes):
        """Makes a sampled span what this thread works on: a record of OTEP 4947."""
        attrs = b"".join(bytes((key, len(value))) + value for key, value in attributes)
        record = trace_id + span_id + b"\1\1" + len(attrs).to_bytes(2, sys.byteorder) + attrs
        must(self.otel_attach(record, len(record)))

    def detach(self):
        self.otel_detach()


def must(error):
    if error:
        raise OSError(error.decode())


def emit(event, **fields):
    """Writes an event in one piece: other threads do so, too."""
    line = json.dumps({"event": event, "pid": os.getpid(), **fields}, separators=(",", ":"))
    os.write(1, line.encode() + b"\n")


def cpu():
    return time.thread_time_ns()


def checkout(spent):
    """Of 20 ms, 10 go to price, 6 to reserve and 4 to receipt."""
    began = cpu()
    price(began + 10 * MS)
    priced = cpu()
    reserve(priced + 6 * MS)
    reserved = cpu()
    receipt(reserved + 4 * MS)
    ended = cpu()
    spent["checkout"] += ended - began
    spent["price"] += priced - began
    spent["reserve"] += reserved - priced
    spent["receipt"] += ended - reserved


def price(until):
    total = 0.0
    while cpu() < until:
        for item in CART:
            total += discount(item)
    return total


def discount(item):
    total, rest = 0.0, item * 1e9
    while rest > 1.0001:
        total += rest
        rest = math.sqrt(rest)
    return total


def reserve(until):
    while cpu() < until:
        sorted([random.random() for _ in range(500)])


def receipt(until):
    while cpu() < until:
        "\n".join(f"item {line}: {line * 1.19:.2f}" for line in range(200))


def transaction(publisher, number, ended):
    """Serves a request, and says what that took."""
    trace_id, span_id, route = os.urandom(16), os.urandom(8), ROUTES[number % len(ROUTES)]
    spent = dict.fromkeys(("checkout", "price", "reserve", "receipt"), 0)
    began_ns = time.time_ns()
    publisher.attach(
        trace_id,
        span_id,
        ((LOCAL_ROOT_SPAN, span_id.hex().encode()), (HTTP_ROUTE, route.encode())),
    )
    began = cpu()
    for _ in range(30):
        if ended.is_set():
            break
        checkout(spent)
    cpu_ns = cpu() - began
    publisher.detach()
    emit(
        "served",
        trace_id=trace_id.hex(),
        span_id=span_id.hex(),
        route=route,
        began_ns=began_ns,
        ended_ns=time.time_ns(),
        cpu_ns=cpu_ns,
        methods=spent,
    )


def serve(publisher, ended):
    number = 0
    while not ended.is_set():
        transaction(publisher, number, ended)
        number += 1


def main(library, service, environment):
    publisher = Publisher(library)
    publisher.publish(service, environment)
    ended = threading.Event()
    server = threading.Thread(target=serve, args=(publisher, ended))
    emit("ready")
    for line in sys.stdin:
        command = line.strip()
        if command == "serve" and not server.ident:
            server.start()
            emit("serving", reply=True)
        elif command == "end":
            ended.set()
            if server.ident:
                server.join()
            emit("ended", reply=True)
        elif command == "quit":
            break
        else:
            emit("error", reply=True, error="no such command, or not now")
    ended.set()
    emit("bye")


if __name__ == "__main__":
    main(*sys.argv[1:])
