"""The two front doors of a crawl: `crawl` answers with the manifest, `crawl_stream` hands out events while it runs.

Owns who holds what: the fetcher (connections, robots, clocks) lives as long as the crawl, the store belongs to the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import ada_url
import attrs
import trio

from forage._codec import dump_compact
from forage.crawler.acquire import Acquirer, LiveAcquirer, ReplayAcquirer
from forage.crawler.engine import Crawl
from forage.crawler.events import CrawlDone, CrawlEvent
from forage.crawler.manifest import CrawlManifest, SkipReason
from forage.crawler.policy import CrawlPolicy, Seed, describe_policy
from forage.crawler.tally import Tally
from forage.crawler.urls import canonical_url
from forage.egress import Dialer, Resolver
from forage.errors import InvalidPolicyError
from forage.fetch import DEFAULT_USER_AGENT, Fetcher, Renderer
from forage.snapshots import SnapshotStore

__all__ = ["CrawlStream", "crawl", "crawl_stream"]

UtcNow = Callable[[], datetime]
Emit = Callable[[CrawlEvent], Awaitable[None]]


@attrs.frozen(kw_only=True)
class _Seams:
    """What a caller may replace."""

    store: SnapshotStore | None
    renderer: Renderer | None
    resolver: Resolver | None
    dialer: Dialer | None
    utc_now: UtcNow


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def crawl(
    seed: Seed | str,
    policy: CrawlPolicy | None = None,
    *,
    store: SnapshotStore | None = None,
    renderer: Renderer | None = None,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    utc_now: UtcNow = _utc_now,
) -> CrawlManifest:
    """Crawl from one seed and answer with the account of it.

    ``store`` keeps every captured page before its row is committed; with ``mode="replay"`` pages come from it and no socket is opened.
    ``resolver`` and ``dialer`` replace DNS and connecting (the guard still judges what they say). Raises InvalidPolicyError for a
    wrong seed or policy, and nothing else: whatever happens on the way is a row or a warning of the manifest.
    """
    seed, policy = _checked(seed, policy or CrawlPolicy(), store)
    seams = _Seams(store=store, renderer=renderer, resolver=resolver, dialer=dialer, utc_now=utc_now)
    return await _crawl(seed, policy, seams, _ignore, _nobody)


async def _ignore(event: CrawlEvent) -> None:
    pass


def _nobody(running: Crawl) -> None:
    pass


class CrawlStream:
    """Events of a running crawl, in commit order, for one consumer; slow consumers hold the crawl back."""

    def __init__(self, events: trio.MemoryReceiveChannel[CrawlEvent]) -> None:
        self._events = events
        self._running: Crawl | None = None
        self._stopped: SkipReason | None = None
        self._manifest: CrawlManifest | None = None

    def __aiter__(self) -> CrawlStream:
        return self

    async def __anext__(self) -> CrawlEvent:
        try:
            event = await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(event, CrawlDone):
            self._manifest = event.manifest
        return event

    @property
    def manifest(self) -> CrawlManifest | None:
        """The account, once `CrawlDone` was handed out."""
        return self._manifest

    def stop(self) -> None:
        """End the crawl cleanly: requests under way are given up, what is left is listed as ``interrupted``, `CrawlDone` follows."""
        self._stopped = SkipReason.INTERRUPTED
        if self._running is not None:
            self._running.halt(self._stopped)

    def _started(self, running: Crawl) -> None:
        self._running = running
        if self._stopped is not None:
            running.halt(self._stopped)


@asynccontextmanager
async def crawl_stream(
    seed: Seed | str,
    policy: CrawlPolicy | None = None,
    *,
    store: SnapshotStore | None = None,
    renderer: Renderer | None = None,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    utc_now: UtcNow = _utc_now,
) -> AsyncIterator[CrawlStream]:
    """The same crawl as a stream of events: ``async with crawl_stream(...) as stream: async for event in stream: ...``.

    Leaving the block ends the crawl at once and waits until nothing of it is left. Raises as `crawl` does, on entering.
    """
    seed, policy = _checked(seed, policy or CrawlPolicy(), store)
    seams = _Seams(store=store, renderer=renderer, resolver=resolver, dialer=dialer, utc_now=utc_now)
    send, receive = trio.open_memory_channel[CrawlEvent](0)
    stream = CrawlStream(receive)

    async def produce() -> None:
        async with send:
            manifest = await _crawl(seed, policy, seams, send.send, stream._started)  # noqa: SLF001 - one module
            await send.send(CrawlDone(manifest=manifest))

    theirs: BaseException | None = None
    try:
        async with receive, trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            try:
                yield stream
            except BaseException as exc:
                theirs = exc
                raise
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # What the consumer's block raised goes out as it was raised; the nursery is no business of the consumer.
        if theirs is not None and group.exceptions == (theirs,):
            raise theirs from theirs.__cause__
        raise


def _checked(seed: Seed | str, policy: CrawlPolicy, store: SnapshotStore | None) -> tuple[Seed, CrawlPolicy]:
    if isinstance(seed, str):
        seed = Seed(url=seed)
    if not isinstance(seed, Seed):
        raise InvalidPolicyError("seed", "a URL as text or a Seed", got=seed)
    if not isinstance(policy, CrawlPolicy):
        raise InvalidPolicyError("policy", "a CrawlPolicy", got=policy)
    if policy.mode == "replay" and store is None:
        raise InvalidPolicyError("store", "the store to replay from, when mode is 'replay'")
    return seed, policy


async def _crawl(seed: Seed, policy: CrawlPolicy, seams: _Seams, emit: Emit, started: Callable[[Crawl], None]) -> CrawlManifest:
    seed_url = canonical_url(seed.url) or _without_secrets(seed.url)
    begin = _instant(seams.utc_now())
    tally = Tally()
    settings = describe_policy(policy)
    async with AsyncExitStack() as stack:
        acquirer: Acquirer
        if policy.mode == "replay" and seams.store is not None:
            acquirer = ReplayAcquirer(seed=seed, seed_url=seed_url, policy=policy, store=seams.store)
        else:
            fetcher = await stack.enter_async_context(_fetcher(seed, policy, seams))
            acquirer = LiveAcquirer(seed=seed, seed_url=seed_url, policy=policy, fetcher=fetcher, store=seams.store)
        running = Crawl(seed_url=seed_url, policy=policy, acquirer=acquirer, tally=tally, emit=emit)
        started(running)
        await running.run()
    return tally.manifest(
        seed=seed_url,
        mode=policy.mode,
        policy=settings,
        policy_digest=hashlib.sha256(dump_compact(settings).encode()).hexdigest(),
        started_at=begin,
        ended_at=_instant(seams.utc_now()),
        tool=f"forage/{_version()}",
        sitemaps=running.sitemaps,
    )


def _without_secrets(url: str) -> str:
    """A URL that the guard will refuse, as it may stand in a manifest."""
    parsed = ada_url.URL(url)
    return f"{parsed.protocol}//{parsed.host}{parsed.pathname}"


def _fetcher(seed: Seed, policy: CrawlPolicy, seams: _Seams) -> Fetcher:
    return Fetcher(
        egress=policy.egress,
        resolver=seams.resolver,
        dialer=seams.dialer,
        user_agent=seed.user_agent or policy.user_agent or DEFAULT_USER_AGENT,
        delay=policy.delay,
        per_host=policy.per_host,
        max_crawl_delay=policy.max_crawl_delay,
        max_retry_wait=policy.max_retry_wait,
        retries=policy.retries,
        attempt_seconds=policy.attempt_seconds,
        max_response_bytes=policy.max_response_bytes,
        obey_robots=policy.obey_robots,
        robots_on_error=policy.robots_on_error,
        render=policy.render,
        renderer=seams.renderer,
        utc_now=seams.utc_now,
    )


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _version() -> str:
    try:
        return version("forage-crawl")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0"
