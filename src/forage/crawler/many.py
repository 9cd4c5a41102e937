"""Many seeds at once: crawls that share connections, robots.txt and the clocks of hosts, and end one by one.

Each seed has its own frontier, order and manifest, so that its manifest is what a crawl of that seed alone would give; what the seeds share
is politeness: two seeds on one host take turns at its clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path

import trio

from forage.crawler.engine import Crawl
from forage.crawler.manifest import CrawlManifest, SkipReason
from forage.crawler.nursery import unwrapped_nursery
from forage.crawler.policy import CrawlPolicy, Seed
from forage.crawler.run import CrawlTools, Seams, check_seed, open_tools, run_crawl, utc_now
from forage.crawler.urls import canonical_url
from forage.egress import Dialer, Resolver, Wire
from forage.errors import InvalidPolicyError
from forage.fetch import Renderer
from forage.snapshots import SnapshotStore

__all__ = ["ManyCrawls", "crawl_many"]

_LEAST_ACTIVE = 16


class ManyCrawls:
    """Manifests of running crawls, each as soon as its crawl has ended.

    A slow consumer holds the crawls back: never more are begun, with their manifests not taken, than 16, or four times the policy's
    ``concurrency`` where that is more.
    """

    def __init__(self, manifests: trio.MemoryReceiveChannel[CrawlManifest]) -> None:
        self._manifests = manifests
        self._running: set[Crawl] = set()
        self._stopped = False

    def __aiter__(self) -> ManyCrawls:
        return self

    async def __anext__(self) -> CrawlManifest:
        try:
            return await self._manifests.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def stop(self) -> None:
        """End all crawls cleanly: what is left of each is listed as ``interrupted``, and every seed still gives its manifest."""
        self._stopped = True
        for running in self._running:
            running.halt(SkipReason.INTERRUPTED)

    @contextmanager
    def _under_way(self) -> Iterator[Callable[[Crawl], None]]:
        """A function that is to be told of one crawl; it is forgotten, and all that it holds, when the block ends."""
        known: list[Crawl] = []

        def started(running: Crawl) -> None:
            known.append(running)
            self._running.add(running)
            if self._stopped:
                running.halt(SkipReason.INTERRUPTED)

        try:
            yield started
        finally:
            self._running.difference_update(known)


@asynccontextmanager
async def crawl_many(
    seeds: Iterable[Seed | str],
    policy: CrawlPolicy | None = None,
    *,
    store: SnapshotStore | None = None,
    renderer: Renderer | None = None,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    wire: Wire | None = None,
    state: Path | None = None,
    utc_now: Callable[[], datetime] = utc_now,
) -> AsyncIterator[ManyCrawls]:
    """Crawl from many seeds: ``async with crawl_many(seeds) as crawls: async for manifest in crawls: ...``.

    ``policy`` holds for each seed (``max_pages`` a seed), but ``concurrency``, ``per_host`` and ``delay`` for all of them together. Leaving
    the block ends what still runs at once and waits until nothing of it is left. Raises InvalidPolicyError on entering, also for a seed
    that is given twice.
    """
    policy = CrawlPolicy() if policy is None else policy
    starts = [check_seed(seed, policy, store) for seed in seeds]
    names = {seed.id or canonical_url(seed.url) or seed.url for seed in starts}
    if len(names) != len(starts):
        raise InvalidPolicyError("seeds", "each seed once; give seeds of one URL different ids")
    seams = Seams(store=store, renderer=renderer, resolver=resolver, dialer=dialer, wire=wire, utc_now=utc_now)
    send, receive = trio.open_memory_channel[CrawlManifest](0)
    crawls = ManyCrawls(receive)
    async with open_tools(policy, seams, state=state) as tools, receive, unwrapped_nursery() as nursery:
        nursery.start_soon(_crawl_all, tools, starts, send, crawls)
        yield crawls
        nursery.cancel_scope.cancel()


async def _crawl_all(tools: CrawlTools, seeds: list[Seed], send: trio.MemorySendChannel[CrawlManifest], crawls: ManyCrawls) -> None:
    # More crawls than requests in flight are begun, because most of them wait for the clock of their host.
    active = trio.Semaphore(max(_LEAST_ACTIVE, 4 * tools.policy.concurrency))

    async def one(seed: Seed, send: trio.MemorySendChannel[CrawlManifest]) -> None:
        with crawls._under_way() as started:  # noqa: SLF001 - one module
            manifest = await run_crawl(tools, seed, None, started=started)
        await send.send(manifest)
        send.close()  # only here: crawls of which one broke down must not look like all have ended
        active.release()  # only now: manifests that nobody takes hold the next crawls back

    async with unwrapped_nursery() as nursery:
        for seed in seeds:
            await active.acquire()
            nursery.start_soon(one, seed, send.clone())
    send.close()
