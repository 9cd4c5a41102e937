"""Mutated HTTP answers against the wire: ``python -m tests.support.fuzz_wire [COUNT] [SEED]``.

Every answer, however broken, must end in bounded time in a body or in a failure of a known kind, and in the same one wherever the stream
is cut. The grammar is that of real answers (heads, chunks, codings) with a few mutations each: bytes flipped, removed, doubled, swapped,
replaced by what parsers stumble over.
"""

from __future__ import annotations

import gzip
import random
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import brotli
import trio

from forage.errors import FetchErrorKind
from tests.support.script_channel import Outcome, outcome_of

__all__ = ["KINDS", "answer", "fuzz"]

KINDS = {
    None,
    FetchErrorKind.NETWORK,
    FetchErrorKind.PROTOCOL,
    FetchErrorKind.INCOMPLETE_BODY,
    FetchErrorKind.DECODE_ERROR,
    FetchErrorKind.RESPONSE_TOO_LARGE,
}
_LIMIT = 4_096
_STUMBLES = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x00", b":", b" ", b"\t", b",", b";", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n",
    b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1", b"+5", b"\xff", b"\x80", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n", b"Connection: close\r\n", b"x" * 300, b"A: b\r\n" * 600, b"a" * 70_000,
]  # fmt: skip
_FIELDS = [
    b"Content-Type: text/html", b"Connection: keep-alive", b"Connection: close", b"Set-Cookie: a=b", b"X-Empty:", b"X: folded\r\n value",
    b"Vary: *", b"Location: /x", b"Upgrade: h2c", b"ETag: \"x\"",
]  # fmt: skip
_CODINGS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": lambda data: bytes(brotli.compress(data, quality=1)),
    b"utf-8": lambda data: data,
}


def answer(chance: random.Random) -> bytes:
    """A well-formed answer of one of the usual forms."""
    body = chance.randbytes(chance.choice([0, 1, 40, 400]))
    fields = chance.sample(_FIELDS, chance.randrange(4))
    for coding in chance.choices(list(_CODINGS), k=chance.choice([0, 0, 1, 1, 2])):
        body = _CODINGS[coding](body)
        fields.append(b"Content-Encoding: " + coding)
    framing = chance.randrange(3)
    if framing == 0:
        fields.append(b"Content-Length: %d" % len(body))
    elif framing == 1:
        fields.append(b"Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in _parts(body, chance)) + b"0\r\n\r\n"
    status = chance.choice([b"200 OK", b"200", b"204 X", b"302 Found", b"304 Not Modified", b"404 X", b"503 X", b"999 X"])
    interim = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" if chance.random() < 0.1 else b""
    head = (
        b"HTTP/1." + chance.choice([b"1", b"1", b"0"]) + b" " + status + b"\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    )
    return interim + head + body


def _parts(data: bytes, chance: random.Random) -> Iterator[bytes]:
    while data:
        size = chance.randint(1, 200)
        yield data[:size]
        data = data[size:]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The answer with up to four changes."""
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(data) + 1)
        size = chance.randint(1, 12)
        change = chance.randrange(6)
        if change == 0:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        elif change == 1:
            data = data[:at] + data[at + size :]
        elif change == 2:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        elif change == 3:
            data = data[:at] + chance.choice(_STUMBLES) + data[at:]
        elif change == 4:
            data = data[:at]
        else:
            data = data[:at] + data[at:].swapcase()
    return data


def _blocks(data: bytes, chance: random.Random) -> list[bytes]:
    if chance.random() < 0.3 or len(data) > 3_000:
        size = chance.choice([1, 7, 100]) if len(data) < 3_000 else 4_096
        return [data[at : at + size] for at in range(0, len(data), size)]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(4)))
    edges = [0, *cuts, len(data)]
    return [data[start:stop] for start, stop in pairwise(edges) if start < stop]


def _differs(whole: Outcome, cut: Outcome) -> bool:
    # Where several things are wrong, the first one met decides, and that depends on how much was looked at at once.
    if FetchErrorKind.RESPONSE_TOO_LARGE in (whole.kind, cut.kind):
        return (whole.kind is None) != (cut.kind is None)
    return whole != cut


async def fuzz(count: int, seed: int) -> None:
    """``count`` answers of the seed; raises AssertionError with the answer that did not hold."""
    chance = random.Random(seed)
    for number in range(count):
        data = mutated(answer(chance), chance)
        method = chance.choice(["GET", "GET", "GET", "HEAD"])
        begun = time.monotonic()
        whole = await outcome_of([data] if data else [], limit=_LIMIT, method=method)
        cut = await outcome_of(_blocks(data, chance), limit=_LIMIT, method=method)
        shown = f"answer {number} of seed {seed}: {data[:2_000]!r}"
        assert whole.kind in KINDS, shown
        assert len(whole.body) <= _LIMIT, shown
        assert not _differs(whole, cut), f"{shown}\nwhole {whole}\ncut {cut}"
        assert time.monotonic() - begun < 5, shown


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    begun = time.monotonic()
    trio.run(fuzz, count, seed)
    print(f"{count} mutated answers of seed {seed}: each ended in a body or a known failure, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
