"""The crawl: a nursery of lanes around one deterministic order.

Owns the wiring only. What is next is `CommitOrder`'s, who may enter is `Admission`'s, how one URL is had is `Acquirer`'s, when a request
may start is the fetcher's clock. The main task commits outcomes in order and hands events to the consumer; while the consumer is slow
nothing new is numbered, which holds the whole crawl back. While the main task has nothing to do, whoever delivers an outcome numbers what
follows from it at once: the main task would get to it only after all answers that came at the same time were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date

import trio

from forage.crawler.acquire import Acquirer
from forage.crawler.admission import Admission
from forage.crawler.events import CrawlEvent, CrawlWarning, PageCaptured, PageFailed, UrlSkipped
from forage.crawler.frontier import Entry, Frontier
from forage.crawler.journal import CrawlRecord
from forage.crawler.lanes import HostHistory, HostTurn, Lanes, Outcome
from forage.crawler.manifest import PageSkip, SitemapCounters, SkipReason
from forage.crawler.nursery import unwrapped_nursery
from forage.crawler.order import CommitOrder, Turn
from forage.crawler.policy import CrawlPolicy
from forage.crawler.progress import CrawlProgress, HostWait
from forage.crawler.settlement import Settlement
from forage.crawler.tally import Tally
from forage.crawler.traps import TrapBudget
from forage.crawler.urls import dedupe_key

__all__ = ["Crawl"]

Emit = Callable[[CrawlEvent], Awaitable[None]]


class Crawl:
    """One crawl of one seed. ``run`` is called once; ``halt`` may be called at any time from the same thread. ``emit`` is None where nobody
    listens.
    """

    _lanes: Lanes

    def __init__(
        self,
        *,
        seed_url: str,
        policy: CrawlPolicy,
        acquirer: Acquirer,
        tally: Tally,
        emit: Emit | None,
        record: CrawlRecord | None = None,
        today: date | None = None,
    ) -> None:
        self._seed_url = seed_url
        self._policy = policy
        self._acquirer = acquirer
        self._tally = tally
        self._emit = emit
        self._record = record
        self._frontier = Frontier(scored=policy.should_follow is not None, in_memory=policy.frontier_in_memory)
        self._admission = Admission(self._frontier, policy, seed_url, TrapBudget(now=today))
        self._settlement = Settlement(policy, on_spent=self._give_up_work)
        self._lost_from = self._settlement.lost_from
        self._order: CommitOrder[Outcome] = CommitOrder(
            self._frontier,
            window=policy.window,
            max_pages=policy.max_pages,
            apply=self._apply,
            stop=self._stop,
            settle=self._settlement.settle,
        )
        self._arrivals: deque[tuple[Entry, Outcome]] = deque()
        self._ready: deque[tuple[Entry, Outcome]] = deque()  # in order, to be committed
        self._idle = False  # the main task waits for news, or has not seen them yet
        self._notices: deque[CrawlEvent] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._fresh: set[int] = set()  # numbers whose outcome is not in the record yet
        self._delivered = 0
        self._halted: SkipReason | None = None
        self._working: set[trio.CancelScope] = set()
        self._applied_bytes = 0
        self._applied_failures = 0
        self._budget: SkipReason | None = None
        self._spending = policy.max_bytes is not None or policy.max_failures is not None
        self.sitemaps = SitemapCounters()

    def halt(self, reason: SkipReason) -> None:
        """End the crawl early and cleanly: what is under way is given up, and all that is left is accounted for with ``reason``."""
        if self._halted is None:
            self._halted = reason
            self._give_up_work()

    def _give_up_work(self) -> None:
        for scope in self._working:
            scope.cancel()

    def notice(self, event: CrawlEvent) -> None:
        """Hand an event that belongs to no entry to the consumer, in between; never waits."""
        self._notices.append(event)
        self._news.unpark_all()

    def progress(self, waits: tuple[HostWait, ...]) -> CrawlProgress:
        """The figures of this moment."""
        captured, failed, skipped, hosts = self._tally.figures
        rows = {"captured": captured, "failed": failed, "skipped": skipped, "hosts": hosts}
        waiting = len(self._frontier) + self._order.numbered - self._delivered - len(self._working)
        return CrawlProgress(**rows, waiting=waiting, under_way=len(self._working), waits=waits)

    async def run(self) -> None:
        """Crawl until nothing is left or a budget is used up. Raises only what the consumer's side raises."""
        with closing(self._frontier):
            await self._run()

    async def _run(self) -> None:
        self._frontier.push(self._seed_url, dedupe_key(self._seed_url), 0)
        async with unwrapped_nursery() as nursery:
            per_host = self._policy.per_host
            workers = min(per_host, self._policy.concurrency)
            self._lanes = Lanes(nursery, decide=self._decide, work=self._work, deliver=self._deliver, per_host=per_host, workers=workers)
            if self._policy.max_seconds is not None:
                nursery.start_soon(self._out_of_time, self._policy.max_seconds)
            await self._discover()
            await self._drive()
            nursery.cancel_scope.cancel()  # ends the timer; every lane is idle by now
        await self._close()

    async def _discover(self) -> None:
        """Sitemap URLs enter at depth 1, before any page's links."""
        if self._policy.discovery == "links" or self._policy.max_pages < 2 or self._policy.max_depth < 1:
            return
        found = None if self._record is None else self._record.sitemaps()
        if found is None:
            with trio.CancelScope() as scope, self._haltable(scope):
                found = await self._acquirer.discover()
            if found is None:
                return
            if self._record is not None:
                await self._record.keep_sitemaps(found)
        self._admission.offer_all(found.links, page_url=self._seed_url, depth=1, committed=0)
        for url in found.off_scope:  # a sitemap vouches for its own host only
            self._admission.note(PageSkip(url=url, reason=SkipReason.OFF_SCOPE, depth=1), dedupe_key(url))
        self.sitemaps = SitemapCounters(documents_read=found.sitemaps_read, urls_discovered=len(found.urls))
        for warning in found.warnings:
            self._tally.warn(str(warning))
            if self._emit is not None:
                await self._emit(CrawlWarning(message=str(warning)))

    async def _close(self) -> None:
        reason = self._budget or SkipReason.MAX_PAGES
        left = [PageSkip(url=url, reason=reason, depth=depth) for url, depth in self._frontier.drain()]
        left += self._admission.passed_over
        self._tally.leave(left)
        if self._emit is not None:
            for skip in left:
                await self._emit(UrlSkipped(skip=skip))

    async def _drive(self) -> None:
        while self._number() is not Turn.DONE or self._ready:
            if not self._arrivals and not self._ready and not self._notices:
                self._idle = True
                await self._news.park()
                self._idle = False
            await self._take_news()

    def _number(self) -> Turn:
        """Send off all entries whose turn it is; why there is no other."""
        turn = self._order.next_entry()
        while isinstance(turn, Entry):
            self._lanes.submit(turn)
            turn = self._order.next_entry()
        return turn

    async def _take_news(self) -> None:
        """Record what arrived, then commit what is next in order, then pass on what else there is to say."""
        arrived = list(self._arrivals)
        self._arrivals.clear()
        if self._record is not None:
            fresh = [(entry, outcome) for entry, outcome in arrived if entry.number in self._fresh]
            self._fresh.difference_update(entry.number for entry, _ in fresh)
            if fresh and (trouble := await self._record.keep(fresh)) is not None:
                self._record = None
                self._tally.warn(trouble)
                self._notices.append(CrawlWarning(message=trouble))
        for one in arrived:
            self._ready.extend(self._order.arrive(*one))
        while self._ready:
            await self._commit(*self._ready.popleft())
        while self._notices:
            notice = self._notices.popleft()
            if self._emit is not None:
                await self._emit(notice)

    async def _commit(self, entry: Entry, outcome: Outcome) -> None:
        self._tally.commit(entry, outcome)
        if self._emit is None:
            return
        if outcome.page is not None:
            await self._emit(PageCaptured(page=outcome.page))
        elif outcome.failure is not None:
            await self._emit(PageFailed(failure=outcome.failure))
        elif outcome.skip is not None:
            await self._emit(UrlSkipped(skip=outcome.skip))
        for message in outcome.warnings:
            await self._emit(CrawlWarning(message=message))

    def _decide(self, entry: Entry, history: HostHistory) -> Outcome | None:
        reason, detail = self._halted or self._settlement.spent, None
        if reason is None and self._lost_from and self._lost_from.get(entry.host, entry.number) < entry.number:
            reason = SkipReason.HOST_PAUSED  # the settlement has the last word on the reason
        if reason is None and (entry.covered or entry.key in history.covered):
            reason, detail = SkipReason.DUPLICATE, "a redirect led to it before"
        if reason is None:
            return None
        return Outcome(skip=PageSkip(url=entry.url, reason=reason, depth=entry.depth, detail=detail))

    async def _work(self, entry: Entry, turn: HostTurn | None) -> Outcome:
        if self._record is not None:
            known = self._record.find(entry)
            if known is not None:
                await trio.lowlevel.checkpoint()
                return known
        with trio.CancelScope() as scope:
            self._working.add(scope)
            if self._halted is not None:
                scope.cancel()
            try:
                outcome = await self._acquirer.acquire(entry, turn)
            finally:
                self._working.discard(scope)
            if self._record is not None:
                self._fresh.add(entry.number)
            return outcome
        return Outcome(skip=PageSkip(url=entry.url, reason=self._halted or SkipReason.INTERRUPTED, depth=entry.depth))

    @contextmanager
    def _haltable(self, scope: trio.CancelScope) -> Iterator[None]:
        """What runs in ``scope`` is given up by `halt`."""
        if self._halted is not None:
            scope.cancel()
        self._working.add(scope)
        try:
            yield
        finally:
            self._working.discard(scope)

    def _deliver(self, entry: Entry, outcome: Outcome) -> None:
        self._delivered += 1
        if outcome.loses is not None:
            self._settlement.foresee(entry, outcome.loses)
        if self._record is not None or not self._idle:
            self._arrivals.append((entry, outcome))
        elif self._emit is not None:
            self._ready.extend(self._order.arrive(entry, outcome))
            self._number()
        else:  # nobody listens and nothing is recorded: the main task need not be woken for each entry
            for one in self._order.arrive(entry, outcome):
                self._tally.commit(*one)
            if self._number() is not Turn.DONE:
                return
        self._news.unpark_all()

    def _apply(self, entry: Entry, outcome: Outcome) -> bool:
        for key in outcome.covered:
            self._admission.cover(key, entry.depth)
        for skip in outcome.found_skips:
            self._admission.note(skip, dedupe_key(skip.url))
        if outcome.page is not None:
            self._applied_bytes += outcome.page.body_bytes
            self._admission.offer_all(outcome.links, page_url=outcome.page.url, depth=entry.depth + 1, committed=self._order.applied)
        if outcome.failure is not None:
            self._applied_failures += 1
        return outcome.skip is None

    def _stop(self) -> bool:
        if self._budget is None and (self._spending or self._halted is not None):
            self._budget = self._halted or self._settlement.used_up(self._applied_bytes, self._applied_failures)
        return self._budget is not None

    async def _out_of_time(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.halt(SkipReason.MAX_SECONDS)
