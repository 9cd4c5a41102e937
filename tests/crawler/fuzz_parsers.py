"""Mutated pages, sitemaps and robots files: each ends in a result, in bounded time.

``python -m tests.crawler.fuzz_parsers --seed 1 --count 100000 --seconds 600`` prints one line a kind and exits with 1 on the first input
that breaks a promise, which it writes to standard error. `test_fuzz_parsers` runs the first ten thousand of each.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from forage.crawler.links import MAX_LINKS, extract_links
from forage.crawler.sitemaps import parse_sitemap
from forage.crawler.urls import MAX_URL_LENGTH, canonical_url
from forage.fetch import parse_robots

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "crawl"
MAX_SECONDS = 2.0
LONGEST = 64 * 1024

TOKENS = [
    *(
        b"<a href=",
        b"<base href=",
        b"<svg>",
        b"</svg>",
        b"<template>",
        b"<!--",
        b"-->",
        b"<script>",
        b"</script>",
        b"<title>",
        b"<![CDATA[",
    ),
    *(b"]]>", b"<frameset>", b"<meta charset=utf-16>", b"<meta http-equiv=refresh content=", b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"&amp;"),
    *(b"<urlset>", b"<sitemapindex>", b"<url><loc>", b"</loc></url>", b"<rss><item><link>", b"<feed><entry>", b"&x;", b"<!DOCTYPE a ["),
    *(b'<!ENTITY x "y">', b"]>", b"<?xml version='1.0' encoding='gbk'?>", b"\x1f\x8b\x08", b"https://site.test/", b"User-agent: *\n"),
    *(b"Disallow: /*$", b"Sitemap: ", b"Crawl-delay: 1e9", b"\r", b"\n", b"'", b'"', b"<", b">", b"%", b"\xe9", b"\xf0\x9f\x98\x80"),
]


@attrs.frozen
class Kind:
    """``run(data, random)`` raises AssertionError when a promise is broken."""

    name: str
    corpus: Callable[[], list[bytes]]
    run: Callable[[bytes, random.Random], None]


def _cases(path: str) -> list[dict[str, object]]:
    return list(json.loads((VECTORS / path).read_text("utf-8")))


def _bytes_of(case: dict[str, object], name: str) -> bytes:
    encoded = case.get(f"{name}_b64")
    return base64.b64decode(str(encoded)) if encoded is not None else str(case.get(name, "")).encode()


def _pages() -> list[bytes]:
    return [_bytes_of(case, "html")[:LONGEST] for case in _cases("links/links.json")]


def _sitemaps() -> list[bytes]:
    documents = [document for case in _cases("sitemaps/sitemaps.json") for document in _list(case["documents"])]
    return [_bytes_of(document, "body")[:LONGEST] for document in documents if "body_parts" not in document]


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _robots() -> list[bytes]:
    return [_bytes_of(case, "robots")[:LONGEST] for case in _cases("robots/match.json")]


TYPES = [
    "text/html",
    "text/html; charset=shift_jis",
    "text/html;charset=iso-2022-jp",
    "application/xhtml+xml",
    "text/xml",
    None,
    "x",
    "text/html; charset=utf-16",
]


def _run_page(data: bytes, rng: random.Random) -> None:
    page = extract_links(
        data, page_url="https://site.test/d/p?q", content_type=rng.choice(TYPES), headers=[("link", data[:80].decode("latin-1"))]
    )
    found = [link.url for link in page.links]
    assert len(set(found)) == len(found) <= MAX_LINKS
    for url in found:
        assert url.startswith(("http://", "https://"))
        assert "#" not in url
        assert len(url) <= MAX_URL_LENGTH
        assert url != "https://site.test/d/p?q"


def _run_sitemap(data: bytes, rng: random.Random) -> None:
    document = parse_sitemap(data, url="https://site.test/s.xml", content_type=rng.choice(TYPES), max_urls=1000, max_bytes=1_000_000)
    assert document.urls or document.sitemaps or document.warnings
    for found in [*document.urls, *document.sitemaps]:
        assert canonical_url(found.loc) == found.loc
        assert "%EF%BF%BD" not in found.loc or b"%EF%BF%BD" in data or b"\xff" not in data


def _run_robots(data: bytes, rng: random.Random) -> None:
    robots = parse_robots(data)
    for target in ("", "a/b?c", "%61*$"):
        verdict = robots.verdict("https://site.test/" + target, rng.choice(["forage", "*", "x/1"]))
        assert verdict.allowed or verdict.rule is not None
    robots.sitemap_urls("https://site.test/robots.txt")


KINDS = [Kind("html", _pages, _run_page), Kind("sitemap", _sitemaps, _run_sitemap), Kind("robots", _robots, _run_robots)]


def mutate(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """One to six edits: bytes flipped, dropped or repeated, tokens put in, another input spliced in, the end cut off."""
    edited = bytearray(data)
    for _ in range(rng.randrange(1, 7)):
        at = rng.randrange(len(edited) + 1)
        end = min(len(edited), at + rng.randrange(1, 40))
        match rng.randrange(7):
            case 0 if at < len(edited):
                edited[at] = rng.randrange(256)
            case 1:
                del edited[at:end]
            case 2:
                edited[at:at] = edited[at:end] * rng.randrange(1, 20)
            case 3:
                other = rng.choice(corpus)
                begin = rng.randrange(len(other) + 1)
                edited[at:at] = other[begin : begin + rng.randrange(1, 200)]
            case 4 if rng.random() < 0.2:
                del edited[at:]
            case _:
                edited[at:at] = rng.choice(TOKENS)
    return bytes(edited[:LONGEST])


def fuzz(kind: Kind, *, seed: int, count: int, seconds: float) -> tuple[int, float]:
    """How many inputs ran, and the seconds of the slowest. Raises AssertionError, with the input as its argument, on a broken promise."""
    corpus = kind.corpus()
    rng = random.Random(f"{kind.name} {seed}")
    ends = time.monotonic() + seconds
    worst, done = 0.0, 0
    while done < count and time.monotonic() < ends:
        data = mutate(rng.choice(corpus), corpus, rng)
        started = time.process_time()
        try:
            kind.run(data, rng)
        except Exception as exc:
            raise AssertionError(f"{kind.name}: {type(exc).__name__}: {exc}", data) from exc
        took = time.process_time() - started
        if took > MAX_SECONDS:
            raise AssertionError(f"{kind.name}: took {took:.1f} s", data)
        worst, done = max(worst, took), done + 1
    return done, worst


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000, help="inputs of each kind")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, for each kind")
    parser.add_argument("--kinds", nargs="*", default=[kind.name for kind in KINDS])
    options = parser.parse_args(arguments)
    for kind in KINDS:
        if kind.name not in options.kinds:
            continue
        started = time.monotonic()
        try:
            done, worst = fuzz(kind, seed=options.seed, count=options.count, seconds=options.seconds)
        except AssertionError as exc:
            print(*exc.args, sep="\n", file=sys.stderr)
            return 1
        print(f"{kind.name}: {done} inputs in {time.monotonic() - started:.1f} s, the slowest {worst * 1000:.0f} ms", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
