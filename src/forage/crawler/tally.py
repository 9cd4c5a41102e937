"""The growing account of a crawl: rows in commit order, figures by host, and the manifest they end in.

Pure. Knows nothing of how outcomes come about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forage.crawler.frontier import Entry, HostKeys
from forage.crawler.manifest import CrawlManifest, HostStatistics, Page, PageFailure, PageSkip, SitemapCounters, SkipReason

if TYPE_CHECKING:
    from forage.crawler.lanes import Outcome

__all__ = ["BUDGETS", "Tally"]

BUDGETS = frozenset(
    {
        SkipReason.MAX_PAGES,
        SkipReason.MAX_BYTES,
        SkipReason.MAX_SECONDS,
        SkipReason.MAX_FAILURES,
        SkipReason.TRAP,
        SkipReason.INTERRUPTED,
        SkipReason.HOST_PAUSED,
        SkipReason.RETRY_AFTER_TOO_LONG,
        SkipReason.CRAWL_DELAY_TOO_LONG,
    }
)
"""Reasons that leave pages unvisited which the policy's scope would have allowed."""


class _Host:
    __slots__ = ("body_bytes", "failures", "pages", "skips")

    def __init__(self) -> None:
        self.pages = self.failures = self.skips = self.body_bytes = 0


class Tally:
    """Rows and figures of one crawl."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._failures: list[PageFailure] = []
        self._skips: list[PageSkip] = []
        self._hosts: dict[str, _Host] = {}
        self._warnings: list[str] = []

    def commit(self, entry: Entry, outcome: Outcome) -> None:
        """Add the outcome of the next entry in order."""
        host = self._host(entry.host)
        if outcome.page is not None:
            self._pages.append(outcome.page)
            host.pages += 1
            host.body_bytes += outcome.page.body_bytes
        elif outcome.failure is not None:
            self._failures.append(outcome.failure)
            host.failures += 1
        elif outcome.skip is not None:
            self._skips.append(outcome.skip)
            host.skips += 1
        self._warnings.extend(outcome.warnings)

    def leave(self, skips: Iterable[PageSkip]) -> None:
        """Add URLs that never became entries."""
        host_of = HostKeys().of
        for skip in skips:
            self._skips.append(skip)
            self._host(host_of(skip.url)).skips += 1

    @property
    def figures(self) -> tuple[int, int, int, int]:
        """Pages, failures and skips so far, and the hosts that have any of them."""
        return len(self._pages), len(self._failures), len(self._skips), len(self._hosts)

    def warn(self, message: str) -> None:
        """Add a warning about the crawl as a whole."""
        self._warnings.append(message)

    def _host(self, host: str) -> _Host:
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host()
        return known

    def manifest(
        self,
        *,
        seed: str,
        mode: str,
        policy: Mapping[str, Any],
        policy_digest: str,
        started_at: str,
        ended_at: str,
        tool: str,
        sitemaps: SitemapCounters,
    ) -> CrawlManifest:
        """The finished account."""
        reasons = {skip.reason for skip in self._skips}
        hit = [reason.value for reason in SkipReason if reason in BUDGETS and reason in reasons]
        statistics = (
            HostStatistics(host=name, pages=h.pages, failures=h.failures, skips=h.skips, body_bytes=h.body_bytes)
            for name, h in sorted(self._hosts.items())
        )
        return CrawlManifest(
            seed=seed,
            mode=mode,
            policy=policy,
            policy_digest=policy_digest,
            started_at=started_at,
            ended_at=ended_at,
            tool=tool,
            pages=tuple(self._pages),
            failures=tuple(self._failures),
            skips=tuple(self._skips),
            hosts=tuple(statistics),
            sitemaps=sitemaps,
            budgets_hit=tuple(hit),
            truncated=bool(hit),
            warnings=tuple(self._warnings),
        )
