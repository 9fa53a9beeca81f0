"""A program of known truth for CPython: see the documentation of package truth."""

import asyncio
import ctypes
import functools
import json
import os
import re
import signal
import sys
import time

library = ctypes.CDLL(os.environ["LD_PRELOAD"])
sink = 0


def hash_(n):
    h = 7
    for i in range(n):
        h = (h * 31 + i) & 0xFFFFFF
    return h


def price():
    return hash_(20000)


def reserve():
    return hash_(10000) + 1


def tiny(a, b):
    return a ^ b


def count():
    t = 0
    for i in range(15000):
        t = tiny(t, i)
    return t


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def recurse():
    return fib(16)


def closures():
    def make(by):
        def add(n):
            return by + n

        return add

    add = make(3)
    t = 0
    for i in range(15000):
        t = add(t)
    return t


numbers = [i * 7919 % 3001 for i in range(3000)]


def key(n):
    return -n


def sorting():
    return sorted(numbers, key=key)[7]


def lambdas():
    return sum(map(lambda n: n * 2 + 1, numbers)) + functools.reduce(lambda a, b: a ^ b, numbers)


def comprehension():
    return len([n * n for n in numbers for _ in range(4)])


def generator():
    for n in numbers:
        yield n + 1
        yield n + 2


def inner():
    yield from generator()


def generators():
    return sum(inner())


text = json.dumps({"words": [str(n) for n in numbers[:600]], "more": {"a": [1.5, None, True]}})
value = json.loads(text)


def parses():
    for _ in range(15):
        json.loads(text)


def formats():
    for _ in range(15):
        json.dumps(value)


def upper(match):
    return match.group().upper()


def regex():
    for _ in range(4):
        re.sub("[0-9]+7", upper, text)


class Box:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n

    def add(self, n):
        self.n += n
        return self

    @property
    def double(self):
        return 2 * self.n

    def __lt__(self, other):
        return self.n < other.n


def boxes():
    t = 0
    for i in range(3000):
        t += Box(i).add(i).double
    return t


def compares():
    return min(map(Box, numbers))


def fails(n):
    if n % 2:
        raise ValueError(n)


def exceptions():
    for i in range(5000):
        try:
            fails(i)
        except ValueError:
            pass


def native():
    return library.spin(3000000)


async def leaf(n):
    h = n
    for i in range(n):
        h = (h * 33 + i) & 0xFFFFFF
    return h


async def middle(n):
    return await leaf(n)


async def steps():
    for _ in range(20):
        await middle(300)
        await asyncio.sleep(0)


loop = asyncio.new_event_loop()


def asynchronous():
    loop.run_until_complete(steps())


phases = [
    price, reserve, count, recurse, closures, sorting, lambdas, comprehension, generators, parses, formats, regex,
    boxes, compares, exceptions, native, asynchronous,
]
callers = {  # by function, those that call it
    "hash_": ["price", "reserve"], "tiny": ["count"], "fib": ["fib", "recurse"], "make": ["closures"],
    "add": ["closures", "boxes"], "key": ["sorting"], "<lambda>": ["lambdas"], "<listcomp>": ["comprehension"],
    "generator": ["inner"], "inner": ["generators"], "upper": ["regex"], "__init__": ["boxes", "compares"],
    "double": ["boxes"], "__lt__": ["compares"], "fails": ["exceptions"], "leaf": ["middle"], "middle": ["steps"],
    "steps": ["asynchronous"], "spin": ["native"], "has_ended": ["work"],
}
took = dict.fromkeys(phases, 0)
ended = []


def end(number, _):
    ended.append(number)


def has_ended():
    return ended


def work(ends):
    while not ends():
        for phase in phases:
            before = time.thread_time_ns()
            phase()
            took[phase] += time.thread_time_ns() - before


def main():
    signal.signal(signal.SIGTERM, end)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    work(has_ended)
    everything = sum(took.values())
    shares = {phase.__name__: took[phase] / everything for phase in phases}
    truth = {
        "file": "truth.py", "work": "work", "thread": os.getpid(), "inclusive": shares, "callers": known_calls(),
        "self": {"hash_": shares["price"] + shares["reserve"], "spin": shares["native"]},
    }
    truth["self"].update({f: shares[f] for f in ["parses", "formats"]})
    json.dump(truth, sys.stdout)


def known_calls():
    """Return callers with the names of functions as they are in this version: qualified, or not."""
    codes = [compile(open(__file__).read(), __file__, "exec")]
    names = {}
    for code in codes:
        codes.extend(c for c in code.co_consts if hasattr(c, "co_name"))
        names.setdefault(code.co_name, set()).add(getattr(code, "co_qualname", code.co_name))
    calls = {"<module>": [""], "work": ["main"], "main": ["<module>"]}
    callers.update((phase.__name__, ["work"]) for phase in phases)
    for called, by in callers.items():
        for name in names.get(called, [called]):
            calls[name] = [full for f in by for full in names.get(f, [f])]
    return calls


main()
