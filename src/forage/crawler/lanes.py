"""Per-host lanes: each host's entries are worked on in order, a few at a time, independently of other hosts.

A lane is a queue, the host's history and at most ``workers`` worker tasks; workers end when the queue is empty, so an idle host
costs no task. A decision about entry i reads what the host did up to entry i - ``per_host``: never more, even if more has
finished by then, so that it does not depend on timing. Spacing between requests is the fetcher's clock, not this module's; where several
entries of a host are worked on at a time, their first requests join that clock in the order of the entries (`HostTurn`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import attrs
import trio

from forage.crawler.frontier import Entry
from forage.crawler.links import Link
from forage.crawler.manifest import Page, PageFailure, PageSkip, SkipReason

__all__ = ["HostHistory", "HostLoss", "HostTurn", "Lanes", "Outcome"]


@attrs.frozen(kw_only=True)
class HostLoss:
    """A host that is left alone: every entry of it that is committed later is skipped for ``reason``, with ``detail``."""

    host: str
    reason: SkipReason
    detail: str


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of one entry: exactly one of page, failure and skip, and what the rest of the crawl learns from it.

    ``links`` are what the page offers; ``covered`` are keys that need no visit of their own any more
    (redirect targets of a captured page); ``found_skips`` are URLs that were met on the way and left alone; ``loses``
    is a host that nothing more is asked of.
    """

    page: Page | None = None
    failure: PageFailure | None = None
    skip: PageSkip | None = None
    links: tuple[Link, ...] = ()
    covered: tuple[str, ...] = ()
    found_skips: tuple[PageSkip, ...] = ()
    loses: HostLoss | None = None
    warnings: tuple[str, ...] = ()


@attrs.define
class HostHistory:
    """What the entries of one host have shown so far, as far as a decision may see it."""

    covered: set[str] = attrs.field(factory=set)

    def learn(self, outcome: Outcome) -> None:
        """Add the outcome of the host's next entry, in the host's order."""
        self.covered.update(outcome.covered)


Decide = Callable[[Entry, HostHistory], "Outcome | None"]
Work = Callable[[Entry, "HostTurn | None"], Awaitable[Outcome]]
Deliver = Callable[[Entry, Outcome], None]


class _Lane:
    def __init__(self, per_host: int) -> None:
        self.queue: deque[Entry] = deque()
        self.workers = 0
        self._history = HostHistory()
        self._per_host = per_host
        self._finished: dict[int, Outcome] = {}
        self._learned = 0
        self._decided = 0
        self._waiting = trio.lowlevel.ParkingLot()  # in the order of their entries, as they came from the queue
        self._woken = False  # the first of them, which has not run yet
        self._asking = 0  # every entry below this has asked, or has ended without
        self._silent: set[int] = set()  # those above that have ended without
        self._in_line: dict[int, trio.Event] = {}

    async def decide(self, entry: Entry, decide: Decide) -> Outcome | None:
        """Decide about an entry in the host's order, with the history up to ``entry.host_index - per_host`` and no more."""
        if self._decided < entry.host_index or not self._may_decide():
            await self._waiting.park()
            self._woken = False
        outcome = decide(entry, self._history)
        self._decided += 1
        self._wake()
        return outcome

    def _may_decide(self) -> bool:
        """Whether what the next decision may see is known."""
        return self._learn(self._decided - self._per_host + 1)

    def _wake(self) -> None:
        """Wake the one whose turn it is, and nobody else: with many workers, waking all costs more than their work."""
        if self._waiting and not self._woken and self._may_decide():
            self._woken = True
            self._waiting.unpark()

    def _learn(self, visible: int) -> bool:
        while self._learned < visible and self._learned in self._finished:
            self._history.learn(self._finished.pop(self._learned))
            self._learned += 1
        return self._learned >= visible

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        index = entry.host_index
        self._finished[index] = outcome
        if index == self._asking:
            self.ask(index)
        elif index > self._asking:
            self._silent.add(index)
        self._wake()

    def ask(self, index: int) -> bool:
        """Let an entry ask, if all before it have; True when it may, or did before."""
        if index != self._asking:
            return index < self._asking
        index += 1
        while index in self._silent:
            self._silent.remove(index)
            index += 1
        self._asking = index
        if (waits := self._in_line.pop(index, None)) is not None:
            waits.set()
        return True

    async def stand_in_line(self, index: int) -> None:
        """Wait until all entries before this one have asked, or have ended without."""
        await self._in_line.setdefault(index, trio.Event()).wait()
        self.ask(index)


class HostTurn:
    """When an entry may make its first request: after the entries of its host that come before it.

    A host that is lost by the answer to one request must not be lost for an entry that comes before.
    """

    __slots__ = ("_index", "_lane")

    def __init__(self, lane: _Lane, index: int) -> None:
        self._lane = lane
        self._index = index

    def take(self) -> bool:
        """Take the turn if it has come."""
        return self._lane.ask(self._index)

    async def wait(self) -> None:
        """Wait for the turn, and take it."""
        await self._lane.stand_in_line(self._index)


class Lanes:
    """All lanes of one crawl, as tasks of the crawl's nursery.

    ``decide`` may settle an entry from its host's history without any request; otherwise ``work`` turns it into an outcome and must not
    raise for operational trouble. ``deliver`` is called with each outcome, in order of completion, and must not wait. ``workers`` bounds
    the tasks of a host: one that waits for another to end begins later than that one could have gone on.
    """

    def __init__(self, nursery: trio.Nursery, *, decide: Decide, work: Work, deliver: Deliver, per_host: int, workers: int) -> None:
        self._nursery = nursery
        self._decide = decide
        self._work = work
        self._deliver = deliver
        self._per_host = per_host
        self._workers = workers
        self._lanes: dict[str, _Lane] = {}

    def submit(self, entry: Entry) -> None:
        """Queue an entry on its host's lane; never waits."""
        lane = self._lanes.get(entry.host)
        if lane is None:
            lane = self._lanes[entry.host] = _Lane(self._per_host)
        lane.queue.append(entry)
        if lane.workers < self._workers:
            lane.workers += 1
            self._nursery.start_soon(self._run, lane, name=f"lane {entry.host}")

    async def _run(self, lane: _Lane) -> None:
        several = self._workers > 1
        try:
            while lane.queue:
                entry = lane.queue.popleft()
                outcome = await lane.decide(entry, self._decide)
                if outcome is None:
                    outcome = await self._work(entry, HostTurn(lane, entry.host_index) if several else None)
                lane.finish(entry, outcome)
                self._deliver(entry, outcome)
        finally:
            lane.workers -= 1
