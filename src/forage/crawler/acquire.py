"""One entry to one outcome: from the network through the fetcher, or from a store in replay.

Owns what a result of `forage.fetch` means to a crawl; rows and links of a snapshot are `reader`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs
import trio

from forage._codec import units
from forage.crawler.discovery import FetchedDocument, Role, SitemapFinds, discover_sitemaps
from forage.crawler.frontier import Entry, host_key
from forage.crawler.lanes import HostLoss, HostTurn, Outcome
from forage.crawler.links import Link
from forage.crawler.manifest import PageFailure, PageSkip, SkipReason
from forage.crawler.missing import MissingPages
from forage.crawler.policy import CrawlPolicy, Seed
from forage.crawler.reader import PageReader, covered_keys
from forage.crawler.urls import canonical_url, dedupe_key, origin_of
from forage.egress import judge_url
from forage.errors import EgressCode, FetchErrorKind, ForageError
from forage.fetch import DEFAULT_USER_AGENT, Fetcher, FetchResult, RobotsCopy, Source
from forage.snapshots import (
    MAX_SOURCE_ID_UNITS,
    Snapshot,
    SnapshotStore,
    body_bytes,
    encode_uri_component,
    replay_source,
)

__all__ = ["Acquirer", "LiveAcquirer", "ReplayAcquirer", "page_source_id"]

_SKIPS = {
    FetchErrorKind.ROBOTS_DENIED: SkipReason.ROBOTS_DENIED,
    FetchErrorKind.ROBOTS_UNREACHABLE: SkipReason.ROBOTS_UNREACHABLE,
    FetchErrorKind.CRAWL_DELAY_TOO_LONG: SkipReason.CRAWL_DELAY_TOO_LONG,
    FetchErrorKind.HOST_PAUSED: SkipReason.HOST_PAUSED,
}
"""Failures of a fetch that are no fault of the page: a crawl lists the URL as skipped."""

_LOSING = {
    SkipReason.RETRY_AFTER_TOO_LONG: SkipReason.HOST_PAUSED,
    SkipReason.HOST_PAUSED: SkipReason.HOST_PAUSED,
    SkipReason.CRAWL_DELAY_TOO_LONG: SkipReason.CRAWL_DELAY_TOO_LONG,
}
"""Reasons that hold for all that is left of the host, and what they are called there."""


class Acquirer(Protocol):
    """How a crawl has one URL. Operational trouble is an outcome, never an exception."""

    async def acquire(self, entry: Entry, turn: HostTurn | None) -> Outcome:
        """The outcome of one entry. Nothing is asked of its host before ``turn``, where one is given, has come."""
        ...

    async def discover(self) -> SitemapFinds:
        """What the sitemaps of the seed's host list."""
        ...


def page_source_id(seed_url: str, page_url: str) -> str:
    """The source id under which a crawl keeps a page; the formats fix it, so that other implementations find it."""
    return _id_prefix(seed_url) + page_url


def _id_prefix(seed_url: str) -> str:
    return f"{encode_uri_component(seed_url.partition('#')[0])}::"


class LiveAcquirer:
    """Fetches through the guard, stores what came, and reads its links. ``on_host`` is told of a host before each request to it."""

    def __init__(
        self,
        *,
        seed: Seed,
        seed_url: str,
        policy: CrawlPolicy,
        fetcher: Fetcher,
        store: SnapshotStore | None,
        on_host: Callable[[str], None],
    ) -> None:
        self._on_host = on_host
        self._seed = seed
        self._seed_url = seed_url
        self._name = seed.id or seed_url
        self._policy = policy
        self._fetcher = fetcher
        self._store = store
        user_agent = seed.user_agent or policy.user_agent
        self._reader = PageReader(policy=policy, user_agent=user_agent or DEFAULT_USER_AGENT)
        self._missing = MissingPages(fetcher, user_agent) if policy.soft_404_probe else None
        self._seed_origin = origin_of(seed_url)
        self._id_prefix = _id_prefix(self._name)

    async def acquire(self, entry: Entry, turn: HostTurn | None) -> Outcome:
        """Fetch, store and read one entry."""
        self._on_host(entry.host)
        source_id = self._id_prefix + entry.url
        if units(source_id) > MAX_SOURCE_ID_UNITS:
            return _failed(entry, FetchErrorKind.INVALID_URL, "the URL is too long to be cited: its source id has more than 1024 units")
        source = Source(
            id=source_id,
            # The seed as it was written: what the guard must refuse in a spelling is no longer there once a parser has repaired it.
            url=self._seed.url.partition("#")[0] if entry.number == 0 else entry.url,
            headers=self._seed.headers if self._seed.headers and origin_of(entry.url) == self._seed_origin else {},
            user_agent=self._seed.user_agent,
        )
        result = await self._fetcher.fetch(
            source,
            store=self._store,
            max_response_bytes=self._seed.max_response_bytes,
            render=self._seed.render if entry.number == 0 else None,
            turn=turn,
        )
        # Every fetch from a host that asks for more than the ceiling has a warning that says so.
        loses = self._lost_by_delay(entry) if result.warnings and result.requests else None
        if result.snapshot is None:
            return _refused(entry, result, loses)
        warnings = list(result.warnings)
        stored = await self._keep(result.snapshot, warnings)
        soft_404 = False
        if self._missing is not None:
            soft_404 = await self._missing.matches(entry.url, result.snapshot)
            if self._missing.refused(entry.url):
                loses = loses or _loss(entry.host, SkipReason.RETRY_AFTER_TOO_LONG)
        outcome = await self._reader.page(
            entry, result.snapshot, stored=stored, warnings=warnings, left_for=_left_for(result), soft_404=soft_404
        )
        return outcome if loses is None else attrs.evolve(outcome, loses=loses)

    def _lost_by_delay(self, entry: Entry) -> HostLoss | None:
        """The end of a host whose Crawl-delay is above the ceiling: it lets one page through, however much time passes until the next."""
        wish = self._fetcher.clock(entry.host).crawl_delay_of(origin_of(entry.url))
        if wish is None or wish <= self._policy.max_crawl_delay:
            return None
        return _loss(entry.host, SkipReason.CRAWL_DELAY_TOO_LONG)

    async def _keep(self, snapshot: Snapshot, warnings: list[str]) -> bool:
        if self._store is None:
            return False
        if snapshot.not_modified:
            return True
        try:
            await self._store.put(snapshot)
        except ForageError as exc:
            warnings.append(f"store: {exc}")
            return False
        except Exception as exc:  # noqa: BLE001 - stores are written by users; a page is not lost for what one of them raises
            warnings.append(f"store: the page could not be kept ({type(exc).__name__})")
            return False
        return True

    async def discover(self) -> SitemapFinds:
        """Read the sitemaps that robots.txt names, or /sitemap.xml; each document is kept as a snapshot of its own."""
        return await discover_sitemaps(self._seed_url, fetch=self._document, judge=partial(judge_url, policy=self._policy.egress))

    async def _document(self, url: str, role: Role) -> FetchedDocument:
        self._on_host(host_key(url))
        # What a site advertises to robots is asked for whatever its rules for pages say.
        result = await self._fetcher.fetch(Source(id=_document_id(url, role), url=url), store=self._store, obey_robots=False)
        snapshot = result.unwrap()
        await self._keep(snapshot, [])
        if role == "robots":
            self._fetcher.remember_robots(url, RobotsCopy(body=body_bytes(snapshot)))  # pages need not ask for it again
        return _as_document(snapshot)


class ReplayAcquirer:
    """Serves every page from a store; opens no socket."""

    def __init__(self, *, seed: Seed, seed_url: str, policy: CrawlPolicy, store: SnapshotStore) -> None:
        self._seed_url = seed_url
        self._name = seed.id or seed_url
        self._store = store
        self._reader = PageReader(policy=policy, user_agent=seed.user_agent or policy.user_agent or DEFAULT_USER_AGENT)

    async def acquire(self, entry: Entry, turn: HostTurn | None) -> Outcome:
        """The newest snapshot of the entry's page; ``no-snapshot`` where the store has none."""
        result = await replay_source(self._store, page_source_id(self._name, entry.url))
        await trio.lowlevel.checkpoint()
        if result.snapshot is None:
            error = result.error
            assert error is not None
            return _failed(entry, error.kind, error.message)
        return await self._reader.page(entry, result.snapshot, stored=True, warnings=())

    async def discover(self) -> SitemapFinds:
        """Read the kept sitemaps."""
        return await discover_sitemaps(self._seed_url, fetch=self._document)

    async def _document(self, url: str, role: Role) -> FetchedDocument:
        return _as_document((await replay_source(self._store, _document_id(url, role))).unwrap())


def _document_id(url: str, role: Role) -> str:
    return f"sitemap-robots::{origin_of(url)}" if role == "robots" else f"sitemap::{url}"


def _as_document(snapshot: Snapshot) -> FetchedDocument:
    return FetchedDocument(url=snapshot.url, body=body_bytes(snapshot), content_type=(snapshot.headers or {}).get("content-type"))


def _left_for(result: FetchResult) -> tuple[Link, ...]:
    """Where a rendered page tried to go by itself, as links: scope, robots and budgets decide about them as about any other."""
    urls = [url for text in result.left_for if (url := canonical_url(text)) is not None]
    return tuple(Link(kind="navigation", url=url) for url in urls)


def _failed(entry: Entry, kind: FetchErrorKind, message: str) -> Outcome:
    return Outcome(failure=PageFailure(number=entry.number, url=entry.url, code=kind.value, message=message, depth=entry.depth))


def _loss(host: str, reason: SkipReason) -> HostLoss:
    return HostLoss(host=host, reason=_LOSING[reason], detail=reason.value)


def _refused(entry: Entry, result: FetchResult, loses: HostLoss | None) -> Outcome:
    """What a fetch without a snapshot means to a crawl."""
    error = result.error
    assert error is not None
    code = error.kind.value
    found: tuple[PageSkip, ...] = ()
    skip = _SKIPS.get(error.kind)
    if error.reason == SkipReason.RETRY_AFTER_TOO_LONG:
        skip = SkipReason.RETRY_AFTER_TOO_LONG
    if error.target is None and skip is not None:
        row = PageSkip(url=entry.url, reason=skip, depth=entry.depth, detail=error.message)
        if skip in _LOSING:
            # A redirect may have led to another host: that one is lost then.
            asked = entry.host if result.last_url is None or not result.redirects else host_key(result.last_url)
            loses = loses or _loss(asked, skip)
        return Outcome(skip=row, loses=loses, warnings=_notes(entry, result))
    if error.reason == EgressCode.REDIRECT_CROSS_HOST:
        code = FetchErrorKind.OFF_SCOPE.value
        skip = SkipReason.OFF_SCOPE
    if error.target is not None and skip is not None:
        target = canonical_url(error.target)
        if target is not None and dedupe_key(target) != entry.key:
            found = (PageSkip(url=target, reason=skip, depth=entry.depth, detail=f"redirect from {entry.url}"),)
    failure = PageFailure(
        number=entry.number,
        url=entry.url,
        code=code,
        message=error.message,
        depth=entry.depth,
        status=error.status,
        rule=error.reason,
        target=error.target,
        last_url=result.last_url if result.redirects else None,
        redirects=result.redirects,
        warnings=result.warnings,
    )
    return Outcome(failure=failure, found_skips=found, covered=covered_keys(entry, result.redirects), loses=loses)


def _notes(entry: Entry, result: FetchResult) -> tuple[str, ...]:
    """Warnings of a skipped URL have no row of their own; they become warnings of the crawl."""
    return tuple(f"{entry.url}: {warning}" for warning in result.warnings)
