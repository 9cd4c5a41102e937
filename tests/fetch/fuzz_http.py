"""Mutated answers through a real session over the wire in memory: every one ends in a result, in bounded time, about its own URL.

``python -m tests.fetch.fuzz_http --seed N --count N --seconds N`` stops at whichever of count and seconds comes first; with
``--robots`` the mutated bytes are those of robots.txt. A failure prints the seed and number of the case and the bytes that were sent.

Time is virtual: a server that hangs costs nothing but its deadline. Connections are kept between cases, so that bytes left over from one
answer are there when the next page is asked for; each answer carries the number of its own page, and no other number may be stored.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import random
import re
import sys
import time
import zlib
from collections.abc import Callable

import brotli
import trio
import trio.testing

from forage.errors import FetchErrorKind
from forage.fetch import Fetcher, FetchResult, parse_robots
from forage.snapshots import body_bytes, validate_snapshot
from tests.support.memory_wire import MemoryPeer, MemoryWire
from tests.support.virtual_hosts import VirtualResolver

__all__ = ["FuzzError", "fuzz_responses", "fuzz_robots"]

LIMIT = 200_000
ATTEMPT_SECONDS = 15.0
MOST_WORK_SECONDS = 5.0
MARK = re.compile(rb"<page (\d{1,12}) ([0-9a-f]{8})>")
TARGET = re.compile(rb"/([0-9]{1,12})")

INTERESTING = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"-1", b"9" * 25, b"\xff", b"\x80",
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 204 No\r\n\r\n", b"HTTP/2 200 OK\r\n",
    b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Content-Length: 1, 1\r\n", b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n",
    b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b"Content-Encoding: zstd\r\n", b"Content-Encoding: deflate, gzip\r\n",
    b"Location: /1\r\n", b"Location: //evil.test/\r\n", b"Location: http://10.0.0.1/\r\n", b"Set-Cookie: a=b; Path=/\r\n",
    b'ETag: "x"\r\n', b'Content-Type: text/html; charset="utf-16\r\n', b"Content-Range: bytes 0-1/2\r\n",
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"fffffffffffffffff\r\n", b" folded\r\n",
    b"Upgrade: h2c\r\n", b"Trailer: X\r\n", b"Retry-After: 1\r\n",
]  # fmt: skip

ROBOTS_PIECES = [
    b"User-agent: *\n", b"User-agent: forage\n", b"User-agent:", b"Disallow: /\n", b"Disallow: /a*b$\n", b"Allow: /a\n", b"Disallow: ",
    b"Crawl-delay: 3\n", b"Crawl-delay: 1e9\n", b"Sitemap: /s.xml\n", b"Sitemap: https://[::1\n", b"#", b"\n", b"\r",
    b"%", b"%2F", b"%zz", b"*" * 50, b"$", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0", b"\xe2\x80\xa8",
    b"<html>", b"a" * 300, b":", b" : ",
]  # fmt: skip


class FuzzError(AssertionError):
    """A case that did not end as every case must."""


def _whole(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    lines = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 " + status + b"\r\n" + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _mark(number: int) -> bytes:
    """What marks the bytes of a page. The checksum tells a mark from what mutation makes of one."""
    return b"<page %d %08x>" % (number, zlib.crc32(b"%d" % number))


def _chunked(body: bytes, rng: random.Random) -> bytes:
    out, at = b"", 0
    while at < len(body):
        size = rng.randint(1, 40)
        piece = body[at : at + size]
        out += b"%x\r\n" % len(piece) + piece + b"\r\n"
        at += size
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/html\r\n\r\n" + out + b"0\r\n\r\n"


def _answer(number: int, rng: random.Random) -> bytes:
    """A well-formed answer for page ``number``."""
    body = _mark(number) * rng.randint(1, 20)
    kind = rng.randrange(12)
    if kind < 3:
        return _whole(body, b"Content-Type: text/html; charset=utf-8")
    if kind == 3:
        return _chunked(body, rng)
    if kind == 4:
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    if kind == 5:
        return _whole(gzip.compress(body), b"Content-Encoding: gzip")
    if kind == 6:
        return _whole(brotli.compress(body), b"Content-Encoding: br")
    if kind == 7:
        return _whole(gzip.compress(zlib.compress(body)), b"Content-Encoding: deflate, gzip")
    if kind == 8:
        return _whole(body, b"Location: /%d" % (number + 1), status=b"302 Found")
    if kind == 9:
        return b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + _whole(body)
    if kind == 10:
        return _whole(
            body, status=rng.choice([b"404 Not Found", b"429 Slow", b"503 Busy", b"206 Partial", b"204 No", b"304 Same", b"999 X"])
        )
    return _whole(gzip.compress(_mark(number) * 60_000), b"Content-Encoding: gzip")


def _mutated(data: bytes, rng: random.Random, pieces: list[bytes]) -> bytes:
    for _ in range(rng.choice([0, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[at + rng.randint(1, 30) :]
        elif kind == 2:
            data = data[:at] + data[at : at + rng.randint(1, 200)] * 2 + data[at:]
        elif kind in (3, 4):
            data = data[:at] + rng.choice(pieces) + data[at:]
        elif kind == 5:  # at a line end, where header fields are
            ends = [m.end() for m in re.finditer(rb"\r?\n", data)] or [0]
            at = rng.choice(ends)
            data = data[:at] + rng.choice(pieces) + data[at:]
        elif kind == 6:
            data = data[:at]
        else:
            data += rng.choice([data, rng.randbytes(rng.randint(1, 40))])
    return data[: LIMIT * 2]


def _number(target: bytes) -> int:
    """The page that a request is for; all odd spellings are page 0."""
    found = TARGET.fullmatch(target)
    return int(found[1]) if found else 0


class _Server:
    """Answers page n with the bytes of case n, cut into pieces with pauses, and ends as the case has it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.sent: dict[int, bytes] = {}
        self._sending = 0
        self._quiet = trio.lowlevel.ParkingLot()

    async def finished(self) -> None:
        """Wait until everything that was to be sent is sent.

        What arrives after the next request went out cannot be told from its answer, by nobody; what arrives before must be noticed.
        """
        while self._sending:
            await self._quiet.park()

    async def handle(self, peer: MemoryPeer) -> None:
        while (head := await peer.request()) is not None:
            number = _number(head.split(b" ")[1])
            rng = random.Random(f"{self._seed}/{number}")
            data = self.sent[number] = _mutated(_answer(number, rng), rng, INTERESTING)
            self._sending += 1
            try:
                await self._send(peer, data, rng)
            finally:
                self._sending -= 1
                self._quiet.unpark_all()
            end = rng.randrange(10)
            if end == 0:
                peer.reset()
                return
            if end < 3:
                peer.close()
                return

    async def _send(self, peer: MemoryPeer, data: bytes, rng: random.Random) -> None:
        at = 0
        while at < len(data):
            size = rng.choice([1, 7, 100, 4096, 1 << 20])
            peer.send(data[at : at + size])
            at += size
            if at < len(data) and at < 2000:
                await trio.sleep(rng.choice([0, 0, 0, 0.001, 1.0]))


def _check(result: FetchResult, took: float, number: int) -> None:
    if (result.snapshot is None) == (result.error is None):
        raise FuzzError("neither or both of snapshot and error")
    if took > 2 * 6 * (ATTEMPT_SECONDS + 5):
        raise FuzzError(f"took {took} s")
    if result.snapshot is None:
        return
    validate_snapshot(result.snapshot)
    body = body_bytes(result.snapshot)
    if len(body) > LIMIT:
        raise FuzzError(f"a body of {len(body)} bytes")
    own = _number(result.snapshot.url.removeprefix("http://site.test").partition("#")[0].encode())
    strange = {int(mark) for mark, checksum in MARK.findall(body) if b"%08x" % zlib.crc32(mark) == checksum} - {own}
    if strange:
        raise FuzzError(f"page {own} (asked as {number}) was stored with the bytes of {sorted(strange)}")


async def _one(fetcher: Fetcher, server: _Server, number: int) -> None:
    began, real = trio.current_time(), time.monotonic()
    try:
        result = await fetcher.fetch(f"http://site.test/{number}")
        _check(result, trio.current_time() - began, number)
        if time.monotonic() - real > MOST_WORK_SECONDS:
            raise FuzzError(f"took {time.monotonic() - real:.1f} s of work")
        if result.error is not None and result.error.kind is FetchErrorKind.HOST_PAUSED:
            raise FuzzError("was not even asked")
        await server.finished()
        # A mutated Retry-After may pause the host for years; virtual ones.
        await trio.sleep(fetcher.clock("site.test").state().paused_for)
    except Exception as exc:
        sent = base64.b64encode(server.sent.get(number, b"")[:4000]).decode()
        raise FuzzError(f"case {number}: {type(exc).__name__}: {exc}\nsent: {sent}") from exc


async def _fuzz(seed: int, count: int, seconds: float, report: Callable[[str], None]) -> int:
    server = _Server(seed)
    until = time.monotonic() + seconds
    async with trio.open_nursery() as nursery:
        wire = MemoryWire(nursery, server.handle)
        fetcher = Fetcher(
            wire=wire,
            resolver=VirtualResolver(),
            delay=0,
            obey_robots=False,
            retries=1,
            attempt_seconds=ATTEMPT_SECONDS,
            max_response_bytes=LIMIT,
            max_retry_wait=5.0,
            random=lambda: 0.5,
        )
        async with fetcher:
            for done in range(count):
                if time.monotonic() >= until:
                    break
                await _one(fetcher, server, 1_000_000 + done * 1000)
                server.sent.clear()
                wire.channels = wire.open
                if (done + 1) % 10_000 == 0:
                    report(f"{done + 1} answers")
            else:
                done = count
        nursery.cancel_scope.cancel()
    return done


def fuzz_responses(seed: int, count: int, seconds: float, report: Callable[[str], None] = lambda _: None) -> int:
    """How many mutated answers were fetched. Raises FuzzError for one that did not end well."""
    try:
        return trio.run(_fuzz, seed, count, seconds, report, clock=trio.testing.MockClock(autojump_threshold=0))
    except* FuzzError as group:
        raise FuzzError(f"seed {seed}: {group.exceptions[0]}") from group


def fuzz_robots(seed: int, count: int, seconds: float, report: Callable[[str], None] = lambda _: None) -> int:
    """How many mutated robots.txt were read and asked. Raises FuzzError."""
    until = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() >= until:
            return number
        rng = random.Random(f"{seed}/robots/{number}")
        data = _mutated(b"".join(rng.choices(ROBOTS_PIECES, k=rng.randint(0, 30))), rng, ROBOTS_PIECES)
        began = time.monotonic()
        try:
            file = parse_robots(data)
            for agent in ("forage", "*", ""):
                verdict = file.group(agent).judge("/a/b?c=%2F")
                if not verdict.allowed and verdict.rule is None:
                    raise FuzzError("a denial without a line")
            file.sitemap_urls("https://site.test/robots.txt")
            if time.monotonic() - began > MOST_WORK_SECONDS:
                raise FuzzError(f"took {time.monotonic() - began:.1f} s")
        except Exception as exc:
            raise FuzzError(f"seed {seed} robots {number}: {type(exc).__name__}: {exc}\n{base64.b64encode(data).decode()}") from exc
        if (number + 1) % 10_000 == 0:
            report(f"{number + 1} files")
    return count


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--robots", action="store_true", help="mutate robots.txt files in place of answers")
    args = parser.parse_args(argv)
    run = fuzz_robots if args.robots else fuzz_responses
    try:
        done = run(args.seed, args.count, args.seconds, lambda line: print(line, flush=True))
    except FuzzError as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"{done} cases, all ended in a result")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
