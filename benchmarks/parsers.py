"""What doubling a hostile input costs each parser: ``python -m benchmarks.parsers [--seconds]``.

Prints one line a parser: the ratio of the cost of an input twice as long, for the worst of its hostile inputs. A linear parser stays
at 2; exit code 1 when one goes above `ALLOWED`. Cost is the number of instructions, counted by valgrind (a few minutes); with
``--seconds``, or where there is no valgrind, CPU seconds, which are too noisy to fail on. Inputs are made long enough to cost some
milliseconds. Pages are measured above the size up to which they are parsed whole: below it that size bounds their cost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

ALLOWED = 2.25
_KIB = 1024
_LONG_ENOUGH = 0.002  # CPU seconds


@attrs.frozen
class Parser:
    """``load`` gives what parses one input; ``units`` are repeated between ``start`` and ``end``, up to ``least`` to ``most`` bytes and
    to twice that."""

    name: str
    load: Callable[[], Callable[[bytes], object]]
    least: int
    most: int
    units: tuple[bytes, ...]
    start: bytes = b""
    end: bytes = b""

    def input(self, unit: bytes, size: int) -> bytes:
        return self.start + unit * (size // len(unit)) + self.end


def _links() -> Callable[[bytes], object]:
    from forage.crawler import extract_links

    return lambda data: extract_links(data, page_url="https://site.test/", content_type="text/html")


def _sitemaps() -> Callable[[bytes], object]:
    from forage.crawler import parse_sitemap

    return lambda data: parse_sitemap(data, url="https://site.test/sitemap.xml")


def _packed_sitemaps() -> Callable[[bytes], object]:
    from forage.crawler import parse_sitemap

    return lambda data: parse_sitemap(gzip.compress(data, 1), url="https://site.test/sitemap.xml")


def _robots() -> Callable[[bytes], object]:
    from forage.fetch import parse_robots

    return lambda data: parse_robots(data).verdict("https://site.test/" + "a" * 100, "forage")


def _head() -> Callable[[bytes], object]:
    from forage.egress.head import HeadReader, parse_head
    from forage.errors import FetchError

    def run(data: bytes) -> None:
        reader = HeadReader()
        try:
            for at in range(0, len(data), 64):
                raw = reader.feed(data[at : at + 64])
                if raw is not None:
                    parse_head(raw)
                    break
        except FetchError:
            pass  # too many fields, say: a refusal must be cheap, too

    return run


PARSERS = [
    Parser(
        "links",
        _links,
        32 * _KIB,
        2048 * _KIB,
        (
            *(b"<div>", b"<div><p>", b"<b>", b"<a href=/x>", b"<a href=/x><div>", b"<ul><li>", b"<font color=red><p>", b"<h1></h2>"),
            *(b"<table><tr><td>", b"<svg>", b"<svg><g>", b"<svg><a href=x>", b"</span>", b"<!--", b"<", b"</", b"<a href='", b"<title>"),
            *(b"<script><!--<script>", b"<base href=/b>", b"<a" + b" " * 50, b"<a x=1 ", b"<meta http-equiv=refresh content='0;url=/x'>"),
            b"<a href='data:" + b"x" * 50,
        ),
    ),
    Parser("one tag", _links, 32 * _KIB, 2048 * _KIB, (b"a b c d ", b"=", b"'", b"\t", b"/", b"a='x' "), start=b"<a ", end=b">"),
    Parser(
        "sitemaps",
        _sitemaps,
        32 * _KIB,
        8192 * _KIB,
        (
            *(b"<url><loc>https://site.test/a</loc></url>", b"<url>", b"<url/>", b"<x>", b"<x/>", b"&", b"<url>&", b"<!--", b"<![CDATA["),
            *(b"<url a='", b"<?", b"<url><loc>", b"]]>", b"</", b"<!DOCTYPE a><url>"),
        ),
        start=b"<urlset>",
    ),
    Parser("gzip sitemaps", _packed_sitemaps, 64 * _KIB, 8192 * _KIB, (b" ", b"<url/>", b"&"), start=b"<urlset>"),
    Parser(
        "text sitemaps",
        _sitemaps,
        128 * _KIB,
        8192 * _KIB,
        (b"https://site.test/a\n", b"x", b"x\r", b"\n \n"),
        start=b"https://site.test/\n",
    ),
    Parser(
        "robots",
        _robots,
        16 * _KIB,
        240 * _KIB,
        (b"Disallow: /a\n", b"Disallow: /*a*a*a*$\n", b"User-agent: x\n", b"User-agent: *\nDisallow: /\n", b"*", b"\n", b"#", b": \r"),
        start=b"User-agent: *\nDisallow: /",
    ),
    Parser(
        "head",
        _head,
        8 * _KIB,
        30 * _KIB,
        (b"a: b\r\n", b"a: b\n", b"x", b"a:\r\n b\r\n c\r\n", b"\r\n ", b" ", b"\n", b"\x01"),
        start=b"HTTP/1.1 200 OK\r\n",
    ),
]


Plan = list[tuple[int, int]]
"""Bytes and repetitions, for each unit of each parser in turn."""


def _plan() -> Plan:
    """Sizes at which each input takes long enough to be measured; repeated where the parser takes no longer ones."""
    plan: Plan = []
    for parser in PARSERS:
        run = parser.load()
        run(parser.input(parser.units[0], 512))  # first use builds tables
        for unit in parser.units:
            size, took = parser.least, _seconds(run, parser.input(unit, parser.least))
            while took < _LONG_ENOUGH and size * 2 <= parser.most:
                size *= 2
                took = _seconds(run, parser.input(unit, size))
            plan.append((size, max(1, round(_LONG_ENOUGH / max(took, 1e-5)))))
    return plan


def _seconds(run: Callable[[bytes], object], data: bytes) -> float:
    started = time.process_time()
    run(data)
    return time.process_time() - started


def _measure(plan: Plan, count: Callable[[Callable[[], object]], None]) -> None:
    """Run every input at its size and at twice that, each under ``count``."""
    sizes = iter(plan)
    for parser in PARSERS:
        run = parser.load()
        run(parser.input(parser.units[0], 512))
        for unit in parser.units:
            size, repeats = next(sizes)
            for data in (parser.input(unit, size), parser.input(unit, 2 * size)):
                count(partial(_repeat, run, data, repeats))


def _repeat(run: Callable[[bytes], object], data: bytes, repeats: int) -> None:
    for _ in range(repeats):
        run(data)


def _costs_in_seconds(plan: Plan) -> Iterator[float]:
    found: list[float] = []

    def count(run: Callable[[], object]) -> None:
        best = 9e9
        for _ in range(3):
            started = time.process_time()
            run()
            best = min(best, time.process_time() - started)
        found.append(best)

    _measure(plan, count)
    return iter(found)


def _costs_in_instructions(valgrind: str, plan: Plan) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder) / "dump"
        command = [
            valgrind,
            "--tool=callgrind",
            f"--callgrind-out-file={dumps}",
            sys.executable,
            "-m",
            "benchmarks.parsers",
            "--child",
            json.dumps(plan),
        ]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"valgrind failed: {done.stderr[-2000:]}")
        total = json.loads(done.stdout)
        counts = [_summary(dumps.with_name(f"dump.{n}")) for n in range(1, total + 1)]
    _, empty, *counts = counts
    return iter([count - empty for count in counts])


def _summary(path: Path) -> float:
    for line in path.read_text().splitlines():
        if line.startswith("summary:"):
            return float(line.split()[1])
    raise SystemExit("valgrind wrote no count")


def _child(plan: Plan) -> None:
    """Under valgrind: have the counters written out, and set to zero, behind each input."""
    calls = 0

    def control() -> None:
        subprocess.run(["callgrind_control", "-d", str(os.getpid())], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def count(run: Callable[[], object]) -> None:
        nonlocal calls
        run()
        control()
        calls += 1

    count(lambda: None)  # start-up
    count(lambda: None)  # the cost of counting
    _measure(plan, count)
    print(calls)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", action="store_true", help="CPU seconds instead of instructions")
    options.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.child is not None:
        _child(args.child)
        return 0
    valgrind = None if args.seconds else shutil.which("valgrind")
    costs = _costs_in_seconds(_plan()) if valgrind is None else _costs_in_instructions(valgrind, _plan())
    unit = "seconds" if valgrind is None else "instructions"
    failed = False
    for parser in PARSERS:
        ratios = {name: 1 / next(costs) * next(costs) for name in parser.units}
        worst = max(ratios, key=ratios.__getitem__)
        failed |= ratios[worst] > ALLOWED
        shown = worst[:24].decode("latin-1").encode("unicode_escape").decode()
        print(f"{parser.name}: twice the input, {ratios[worst]:.2f}x the {unit} at worst ({shown!r}), {len(ratios)} inputs", flush=True)
    return 1 if failed and valgrind is not None else 0


if __name__ == "__main__":
    raise SystemExit(main())
