"""Which sitemaps a crawl reads, and what they list: bounded reading through the caller's fetch.

Breadth first from robots.txt, or from given URLs, through nested indexes. Bounds documents, depth, requests and URLs; a document is
read once, by its final URL. Scope is the seed's: only a document that robots.txt (or the caller) names may lie on another host, and it
vouches for pages of the seed's host alone. Owns no network: ``fetch`` brings the guard, politeness, robots and snapshots; documents are
parsed by `sitemaps`, large ones in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, Protocol

import attrs
import trio

from forage.crawler.links import Link
from forage.crawler.sitemaps import MAX_SITEMAP_URLS, SitemapDocument, SitemapKind, SitemapUrl, parse_sitemap
from forage.crawler.urls import canonical_url, origin_of, same_host
from forage.egress import EgressPolicy, judge_url
from forage.errors import EgressDeniedError, FetchError, FetchErrorKind, ForageError
from forage.fetch import parse_robots

__all__ = ["FetchedDocument", "Role", "SitemapFetch", "SitemapFinds", "SitemapWarning", "discover_sitemaps"]

MAX_DOCUMENTS = 50
MAX_DEPTH = 3
_INLINE_BYTES = 64 * 1024

_FAILURES = {FetchErrorKind.EGRESS_DENIED: "sitemap-egress-denied", FetchErrorKind.OFF_SCOPE: "sitemap-off-scope"}

Role = Literal["robots", "sitemap"]


@attrs.frozen(kw_only=True)
class FetchedDocument:
    """A document that answered with success: ``url`` is the one that answered, after redirects; ``body`` without content coding."""

    url: str
    body: bytes = attrs.field(repr=False)
    content_type: str | None = None


class SitemapFetch(Protocol):
    """How discovery gets one document."""

    async def __call__(self, url: str, role: Role, /) -> FetchedDocument:
        """The document, behind at most the redirects that the guard allows.

        Raises a `ForageError` when it cannot be had, a status other than success included.
        """
        ...


@attrs.frozen(kw_only=True)
class SitemapWarning:
    """A code, and the document that it is about (or that listed what it is about)."""

    code: str
    url: str

    def __str__(self) -> str:
        return f"{self.code}: {self.url.partition('?')[0]}"


@attrs.frozen(kw_only=True)
class SitemapFinds:
    """What the sitemaps of a site list: one entry per fetch URL, in the order found. Every warning is given once for a document.

    ``off_scope`` are listed pages of other hosts. ``documents_read`` counts robots.txt, too, ``sitemaps_read`` does not.
    """

    urls: tuple[SitemapUrl, ...] = ()
    off_scope: tuple[str, ...] = ()
    documents_read: int = 0
    sitemaps_read: int = 0
    requests: int = 0
    unpacked_bytes: int = 0
    warnings: tuple[SitemapWarning, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """The URLs as links of kind ``sitemap``."""
        return tuple(Link(kind="sitemap", url=found.loc) for found in self.urls)


async def discover_sitemaps(
    seed_url: str,
    *,
    fetch: SitemapFetch,
    start: Sequence[str] = (),
    max_urls: int = MAX_SITEMAP_URLS,
    max_documents: int = MAX_DOCUMENTS,
    max_depth: int = MAX_DEPTH,
    judge: Callable[[str], object] | None = None,
) -> SitemapFinds:
    """Read the sitemaps of the seed's host.

    ``start`` defaults to its robots.txt. A robots.txt stands for its Sitemap lines, or for ``/sitemap.xml`` when it has none or cannot be
    had. ``judge`` raises `EgressDeniedError` for a URL that the guard refuses by itself (default: that of the default policy); it is asked
    about what is off scope, which is never fetched. Trouble with a document is a warning; what ``fetch`` raises beyond its contract passes.
    """
    judge = judge or partial(judge_url, policy=EgressPolicy())
    reading = _Reading(seed_url, fetch, judge, max_urls=max_urls, max_documents=max_documents, max_depth=max_depth)
    for url in start or (origin_of(canonical_url(seed_url) or seed_url) + "/robots.txt",):
        await reading.begin(url)
    await reading.run()
    return reading.finds()


@attrs.frozen
class _Pending:
    """A document to read. ``above`` are the URLs of the documents that led to it."""

    url: str
    depth: int
    above: tuple[str, ...]


class _Reading:
    def __init__(
        self,
        seed_url: str,
        fetch: SitemapFetch,
        judge: Callable[[str], object],
        *,
        max_urls: int,
        max_documents: int,
        max_depth: int,
    ) -> None:
        self._seed = canonical_url(seed_url) or seed_url
        self._fetch = fetch
        self._judge = judge
        self._max_urls = max_urls
        self._max_documents = max_documents
        self._max_depth = max_depth
        # Failures are no documents, but a hostile index of nothing else must end, too.
        self._max_requests = 2 * max_documents
        self._queue: deque[_Pending] = deque()
        self._seen: set[str] = set()
        self._read: set[str] = set()
        self._urls: dict[str, SitemapUrl] = {}
        self._off_scope: dict[str, None] = {}
        self._warnings: dict[tuple[str, str], None] = {}
        self._sitemaps = 0
        self._robots = 0
        self._requests = 0
        self._bytes = 0

    def finds(self) -> SitemapFinds:
        return SitemapFinds(
            urls=tuple(self._urls.values()),
            off_scope=tuple(self._off_scope),
            documents_read=self._sitemaps + self._robots,
            sitemaps_read=self._sitemaps,
            requests=self._requests,
            unpacked_bytes=self._bytes,
            warnings=tuple(SitemapWarning(code=code, url=url) for code, url in self._warnings),
        )

    def _note(self, code: str, url: str) -> None:
        self._warnings.setdefault((code, url))

    async def begin(self, text: str) -> None:
        url = canonical_url(text, self._seed)
        if url is None:
            self._note("sitemap-url-skipped", text)
        elif url[len(origin_of(url)) :] == "/robots.txt":
            for named in await self._named_by_robots(url):
                self._enqueue(named, 0, (), listed_in=url)
        else:
            self._enqueue(url, 0, (), listed_in=url)

    async def _named_by_robots(self, robots_url: str) -> list[str]:
        default = [origin_of(robots_url) + "/sitemap.xml"]
        self._requests += 1
        try:
            document = await self._fetch(robots_url, "robots")
        except ForageError as exc:
            self._note(_code_of(exc), robots_url)
            return default
        self._robots += 1
        named = parse_robots(document.body).sitemap_urls(document.url)
        return [url for text in named if (url := canonical_url(text)) is not None] or default

    def _enqueue(self, url: str, depth: int, above: tuple[str, ...], *, listed_in: str) -> None:
        if url in above:
            self._note("sitemap-cycle", listed_in)
        elif url in self._seen:
            pass  # listed again: read once
        elif depth > self._max_depth:
            self._note("sitemap-depth-limit", listed_in)
        elif len(self._queue) <= self._max_requests:  # more will never be asked for
            self._seen.add(url)
            self._queue.append(_Pending(url, depth, above))

    async def run(self) -> None:
        while self._queue:
            pending = self._queue.popleft()
            if len(self._urls) >= self._max_urls:
                if all(code != "sitemap-url-limit" for code, _ in self._warnings):
                    self._note("sitemap-url-limit", pending.url)
                return
            if self._sitemaps >= self._max_documents or self._requests >= self._max_requests:
                self._note("sitemap-document-limit", pending.url)
                return
            document = await self._get(pending)
            if document is not None:
                self._use(await _parse(document), pending, document.url)

    async def _get(self, pending: _Pending) -> FetchedDocument | None:
        self._requests += 1
        try:
            document = await self._fetch(pending.url, "sitemap")
        except ForageError as exc:
            self._note(_code_of(exc), pending.url)
            return None
        final = canonical_url(document.url) or pending.url
        if final in pending.above:
            self._note("sitemap-cycle", pending.url)
            return None
        if final in self._read:
            return None
        self._read.add(final)
        self._seen.add(final)
        return document

    def _use(self, found: SitemapDocument, pending: _Pending, final_url: str) -> None:
        self._sitemaps += 1
        self._bytes += found.unpacked_bytes
        for code in found.warnings:
            self._note(code, pending.url)
        if found.kind is SitemapKind.INDEX:
            above = (*pending.above, pending.url, canonical_url(final_url) or pending.url)
            self._children(found.sitemaps, pending, above)
        else:
            self._pages(found.urls, pending.url)

    def _children(self, children: Iterable[SitemapUrl], pending: _Pending, above: tuple[str, ...]) -> None:
        for child in children:
            if same_host(child.loc, self._seed):
                self._enqueue(child.loc, pending.depth + 1, above, listed_in=pending.url)
            else:
                self._note(self._why_not(child.loc), pending.url)

    def _why_not(self, url: str) -> str:
        try:
            self._judge(url)
        except EgressDeniedError:
            return "sitemap-egress-denied"
        return "sitemap-off-scope"

    def _pages(self, urls: Iterable[SitemapUrl], listed_in: str) -> None:
        for found in urls:
            if found.loc in self._urls:
                continue
            if not same_host(found.loc, self._seed):
                self._note("sitemap-off-scope", listed_in)
                if len(self._off_scope) < self._max_urls:
                    self._off_scope.setdefault(found.loc)
            elif len(self._urls) >= self._max_urls:
                self._note("sitemap-url-limit", listed_in)
                return
            else:
                self._urls[found.loc] = found


def _code_of(error: ForageError) -> str:
    if isinstance(error, EgressDeniedError):
        return "sitemap-egress-denied"
    return _FAILURES.get(error.kind, "sitemap-fetch-failed") if isinstance(error, FetchError) else "sitemap-fetch-failed"


async def _parse(document: FetchedDocument) -> SitemapDocument:
    parse = partial(parse_sitemap, document.body, url=document.url, content_type=document.content_type)
    if len(document.body) <= _INLINE_BYTES and not document.body.startswith(b"\x1f\x8b"):
        await trio.lowlevel.checkpoint()
        return parse()
    return await trio.to_thread.run_sync(parse)
