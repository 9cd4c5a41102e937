"""Whether a manifest accounts for everything that was there to be seen: links read by another parser, and the servers' own logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

import ada_url

from forage.crawler import CrawlManifest, SkipReason, canonical_url, dedupe_key
from tests.support.server_log import Seen

__all__ = ["assert_accounted", "real_links"]

ATTEMPTED = frozenset({SkipReason.ROBOTS_DENIED, SkipReason.RETRY_AFTER_TOO_LONG, SkipReason.INTERRUPTED, SkipReason.MAX_SECONDS})
"""Skips that may have cost a request: a redirect that robots.txt forbids to follow, an answer that asks for too long a pause."""

SPENT = frozenset({SkipReason.MAX_BYTES, SkipReason.MAX_FAILURES})
"""Budgets that end while requests are under way; what those bring, redirects too, is in no row."""


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in reversed(attrs)}
        if tag == "base" and self.base is None:
            self.base = values.get("href")
        elif tag in ("a", "area") and "href" in values:
            self.hrefs.append(values["href"])
        elif tag in ("frame", "iframe") and values.get("src"):
            self.hrefs.append(values["src"])


def real_links(html: str, url: str) -> set[str]:
    """Fetch URLs of the links of a page, read by the standard library."""
    anchors = _Anchors()
    anchors.feed(html)
    anchors.close()
    base = _joined(url, anchors.base) if anchors.base else url
    absolute = {_joined(base, href) for href in anchors.hrefs}
    return {found for text in absolute if text.startswith(("http://", "https://")) and (found := canonical_url(text)) is not None}


def _joined(base: str, href: str) -> str:
    try:
        return ada_url.URL(href, base=base).href
    except ValueError:
        return ""


def _rows(manifest: CrawlManifest) -> Iterator[str]:
    yield from (page.requested_url for page in manifest.pages)
    yield from (failure.url for failure in manifest.failures)
    yield from (skip.url for skip in manifest.skips)


def assert_accounted(
    manifest: CrawlManifest, log: Iterable[Seen], *, scheme: str = "http", listed: Iterable[str] = (), elsewhere: Iterable[str] = ()
) -> None:
    """Every URL that was there to be seen has one row and none has two, counts add up, and the log holds nothing else.

    The manifest must have kept its bodies. ``listed`` are the URLs of sitemaps, ``elsewhere`` those that no markup shows.
    """
    rows = Counter(map(dedupe_key, _rows(manifest)))
    twice = [key for key, number in rows.items() if number > 1]
    assert not twice, f"more than one row: {twice[:3]}"
    named = {dedupe_key(url) for url in (*_hops(manifest), *_refused(manifest))}  # the row of a redirect accounts for where it led
    seen = _seen(manifest) | {dedupe_key(url) for url in (*listed, *elsewhere)}
    missing = seen - rows.keys() - named
    assert not missing, f"seen, and without a row: {sorted(missing)[:3]}"
    invented = rows.keys() - seen
    assert not invented, f"rows of URLs that nothing shows: {sorted(invented)[:3]}"
    _assert_counts(manifest)
    _assert_log(manifest, log, scheme)


def _seen(manifest: CrawlManifest) -> set[str]:
    """Keys of the seed, of what captured pages link to, and of what redirects named."""
    seen = {dedupe_key(manifest.seed)}
    for page in manifest.pages:
        assert page.snapshot is not None, "the crawl kept no bodies"
        content_type = (page.snapshot.headers or {}).get("content-type", "")
        if "html" in content_type and isinstance(page.snapshot.body, str):
            seen |= {dedupe_key(url) for url in real_links(page.snapshot.body, page.url)} - {dedupe_key(page.url)}
    return seen | {dedupe_key(url) for url in (*_hops(manifest), *_refused(manifest))}


def _hops(manifest: CrawlManifest) -> Iterator[str]:
    """URLs that redirects led to."""
    for page in manifest.pages:
        yield from (page.url, *page.redirects)
    for failure in manifest.failures:
        yield from failure.redirects if failure.last_url is None else (failure.last_url, *failure.redirects)


def _refused(manifest: CrawlManifest) -> Iterator[str]:
    """URLs that redirects would have led to."""
    targets = (canonical_url(failure.target) for failure in manifest.failures if failure.target is not None)
    yield from (target for target in targets if target is not None)


def _assert_counts(manifest: CrawlManifest) -> None:
    counts = manifest.counts
    assert counts.seen == counts.captured + counts.failed + counts.skipped == len(list(_rows(manifest)))
    for name in ("pages", "failures", "skips"):
        assert sum(getattr(host, name) for host in manifest.hosts) == len(getattr(manifest, name)), name
    numbers = [page.number for page in manifest.pages] + [failure.number for failure in manifest.failures]
    assert len(numbers) == len(set(numbers)), "two entries share a number"


def _assert_log(manifest: CrawlManifest, log: Iterable[Seen], scheme: str) -> None:
    asked = {f"{scheme}://{one.host}{one.target}" for one in log}
    pages = {url for url in asked if not url.endswith(("/robots.txt", ".xml"))}
    fetched = {page.requested_url for page in manifest.pages if not page.not_modified}
    assert fetched <= pages, f"captured, and never asked for: {sorted(fetched - pages)[:3]}"
    attempts = {dedupe_key(page.requested_url) for page in manifest.pages} | {dedupe_key(failure.url) for failure in manifest.failures}
    attempts |= {dedupe_key(skip.url) for skip in manifest.skips if skip.reason in ATTEMPTED}
    attempts |= {dedupe_key(url) for url in _hops(manifest)}
    if any(skip.reason in SPENT for skip in manifest.skips):
        return
    stray = {url for url in pages if dedupe_key(url) not in attempts}
    assert not stray, f"asked for, and in no row of an attempt: {sorted(stray)[:3]}"
