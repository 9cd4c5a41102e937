"""The two front doors of a crawl: `crawl` answers with the manifest, `crawl_stream` hands out events while it runs.

Owns the events' way to a consumer and how a consumer that leaves ends the crawl. The store belongs to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import trio

from forage.crawler.engine import Crawl
from forage.crawler.events import CrawlDone, CrawlEvent
from forage.crawler.manifest import CrawlManifest, SkipReason
from forage.crawler.nursery import unwrapped_nursery
from forage.crawler.policy import CrawlPolicy, Seed
from forage.crawler.progress import CrawlProgress
from forage.crawler.run import CrawlTools, Seams, check_seed, open_tools, run_crawl, utc_now
from forage.egress import Dialer, Resolver, Wire
from forage.fetch import Renderer
from forage.snapshots import SnapshotStore

__all__ = ["CrawlStream", "crawl", "crawl_stream"]

UtcNow = Callable[[], datetime]


async def crawl(
    seed: Seed | str,
    policy: CrawlPolicy | None = None,
    *,
    store: SnapshotStore | None = None,
    renderer: Renderer | None = None,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    wire: Wire | None = None,
    state: Path | None = None,
    utc_now: UtcNow = utc_now,
) -> CrawlManifest:
    """Crawl from one seed and answer with the account of it.

    ``store`` keeps every captured page before its row is committed; with ``mode="replay"`` pages come from it and no socket is opened.
    ``resolver`` and ``dialer`` replace DNS and connecting, ``wire`` all of the network below HTTP (the guard still judges what they
    say and what is asked of them). ``state`` is a file that remembers the crawl: after an interruption, kill -9 included, the same call
    goes on where it was.

    Raises InvalidPolicyError for a wrong seed, policy or state file, and for an answer of ``should_follow`` that is none; whatever else
    happens on the way is a row or a warning of the manifest. An error in a function that the caller gave (``should_follow``,
    ``renderer``, ``utc_now``) ends the crawl and comes out as it was raised; where several are raised at the same moment, in one
    ExceptionGroup. Whatever a ``store``, ``resolver`` or ``dialer`` raises is a warning or a failure that names its type: pages are not
    lost for it, and the guard fails closed.
    """
    policy = CrawlPolicy() if policy is None else policy
    seed = check_seed(seed, policy, store)
    seams = Seams(store=store, renderer=renderer, resolver=resolver, dialer=dialer, wire=wire, utc_now=utc_now)
    async with open_tools(policy, seams, state=state, user_agent=seed.user_agent) as tools:
        return await run_crawl(tools, seed, None, started=_nobody)


def _nobody(running: Crawl) -> None:
    pass


class CrawlStream:
    """Events of a running crawl, in commit order, for one consumer; slow consumers hold the crawl back."""

    def __init__(self, events: trio.MemoryReceiveChannel[CrawlEvent]) -> None:
        self._events = events
        self._running: Crawl | None = None
        self._tools: CrawlTools | None = None
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

    def progress(self) -> CrawlProgress:
        """How far the crawl is, at this moment; for a display, at any time."""
        if self._running is None or self._tools is None:
            return CrawlProgress()
        return self._running.progress(self._tools.waits.current(trio.current_time()))

    def stop(self) -> None:
        """End the crawl cleanly: requests under way are given up, what is left is listed as ``interrupted``, `CrawlDone` follows."""
        self._stopped = SkipReason.INTERRUPTED
        if self._running is not None:
            self._running.halt(self._stopped)

    def _started(self, running: Crawl, tools: CrawlTools) -> None:
        self._running, self._tools = running, tools
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
    wire: Wire | None = None,
    state: Path | None = None,
    utc_now: UtcNow = utc_now,
) -> AsyncIterator[CrawlStream]:
    """The same crawl as a stream of events: ``async with crawl_stream(...) as stream: async for event in stream: ...``.

    Leaving the block ends the crawl at once and waits until nothing of it is left. Raises as `crawl` does, on entering.
    """
    policy = CrawlPolicy() if policy is None else policy
    start = check_seed(seed, policy, store)
    seams = Seams(store=store, renderer=renderer, resolver=resolver, dialer=dialer, wire=wire, utc_now=utc_now)
    send, receive = trio.open_memory_channel[CrawlEvent](0)
    stream = CrawlStream(receive)

    async def produce() -> None:
        started = partial(stream._started, tools=tools)  # noqa: SLF001 - one module
        manifest = await run_crawl(tools, start, send.send, started=started)
        await send.send(CrawlDone(manifest=manifest))
        send.close()  # only here: a crawl that broke down must not look like one that has ended

    async with open_tools(policy, seams, state=state, user_agent=start.user_agent) as tools, receive, unwrapped_nursery() as nursery:
        nursery.start_soon(produce)
        yield stream
        nursery.cancel_scope.cancel()
