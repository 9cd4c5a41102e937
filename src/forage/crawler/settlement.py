"""What counts of an outcome, now that all before it are committed: the end of hosts, and of the budgets for bytes and failures.

Waits for nothing. A host is lost, and a budget used up, at the commit of the entry that did it; that is the same entry at any
concurrency. What later entries brought was asked for beside it, or before it was known, and is not listed: at another concurrency it would
not have been asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from forage.crawler.frontier import Entry
from forage.crawler.lanes import HostLoss, Outcome
from forage.crawler.manifest import PageSkip, SkipReason
from forage.crawler.policy import CrawlPolicy

__all__ = ["Settlement"]


class Settlement:
    """The rule for one crawl. ``on_spent`` is called once, at the commit that used up a budget.

    ``spent`` is the reason of that, as soon as it is known. ``lost_from`` gives the number of the entry by which a host is lost, as soon as
    that is foreseen: for work that may be spared, since `settle` will not let it count.
    """

    def __init__(self, policy: CrawlPolicy, *, on_spent: Callable[[], None]) -> None:
        self.spent: SkipReason | None = None
        self.lost_from: dict[str, int] = {}
        self._lost: dict[str, HostLoss] = {}  # as committed
        self._max_bytes = policy.max_bytes
        self._max_failures = policy.max_failures
        self._counting = policy.max_bytes is not None or policy.max_failures is not None
        self._bytes = 0
        self._failures = 0
        self._on_spent = on_spent

    def foresee(self, entry: Entry, loss: HostLoss) -> None:
        """Take note of a loss before its commit. That of another host than the entry's may yet turn out never to have been asked for."""
        if loss.host == entry.host:
            self.lost_from[entry.host] = min(entry.number, self.lost_from.get(entry.host, entry.number))

    def settle(self, entry: Entry, outcome: Outcome) -> Outcome:
        """The outcome that counts. Called for each entry in commit order."""
        if self.spent is not None:
            return Outcome(skip=PageSkip(url=entry.url, reason=self.spent, depth=entry.depth))
        if self._lost and (loss := self._lost.get(entry.host)) is not None:
            return Outcome(skip=PageSkip(url=entry.url, reason=loss.reason, depth=entry.depth, detail=loss.detail))
        if outcome.loses is not None:
            self._lost.setdefault(outcome.loses.host, outcome.loses)
            self.lost_from.setdefault(outcome.loses.host, entry.number)
        if self._counting:
            self._count(outcome)
        return outcome

    def _count(self, outcome: Outcome) -> None:
        if outcome.page is not None:
            self._bytes += outcome.page.body_bytes
        elif outcome.failure is not None:
            self._failures += 1
        self.spent = self.used_up(self._bytes, self._failures)
        if self.spent is not None:
            self._on_spent()

    def used_up(self, body_bytes: int, failures: int) -> SkipReason | None:
        """The budget that such figures use up."""
        if self._max_bytes is not None and body_bytes >= self._max_bytes:
            return SkipReason.MAX_BYTES
        if self._max_failures is not None and failures > self._max_failures:
            return SkipReason.MAX_FAILURES
        return None
