"""Which of the links of a committed page enter the frontier, and the account of those that do not.

Pure. Called in commit order only, so its answers depend on site and policy alone. A reason can be overtaken: a URL that was passed
over because one link said nofollow, or because it lay too deep, is admitted when a later page offers it in a better way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from forage.crawler.frontier import FollowContext, Frontier
from forage.crawler.links import Link
from forage.crawler.manifest import PageSkip, SkipReason
from forage.crawler.policy import CrawlPolicy
from forage.crawler.traps import TrapBudget
from forage.crawler.urls import dedupe_key, origin_of, same_host
from forage.errors import InvalidPolicyError

__all__ = ["Admission"]


_HIGHEST = 2**1000
"""A whole number may be larger than a float can be."""


def _score(answer: object) -> float:
    """The rank that a filter gave. Anything but a bool or a number is a mistake of its author, and would be taken for a rank or a no."""
    if answer is True:
        return 0.0
    if isinstance(answer, int | float):
        score = float(max(min(answer, _HIGHEST), -_HIGHEST)) if isinstance(answer, int) else answer
        if not math.isnan(score):
            return score
    said = repr(answer) if isinstance(answer, float) else type(answer).__name__
    raise InvalidPolicyError("should_follow", f"a function that answers each link with True, False or a number, not with {said}")


class Admission:
    """The gate of one frontier. ``passed_over`` lists what stayed outside, in discovery order."""

    def __init__(self, frontier: Frontier, policy: CrawlPolicy, seed_url: str, traps: TrapBudget) -> None:
        self._frontier = frontier
        self._policy = policy
        self._seed_url = seed_url
        self._seed_root = origin_of(seed_url) + "/"
        self._traps = traps
        self._passed_over: dict[str, PageSkip] = {}
        self._off_scope: set[str] = set()  # URLs, not keys
        self._trapped = False

    @property
    def trapped(self) -> bool:
        """True once a trap budget has refused a URL."""
        return self._trapped

    @property
    def passed_over(self) -> tuple[PageSkip, ...]:
        """URLs that were seen and never admitted."""
        return tuple(self._passed_over.values())

    def note(self, skip: PageSkip, key: str) -> None:
        """Account for a URL met outside a page's links, such as a refused redirect target."""
        if not self._frontier.knows(key):
            self._passed_over.setdefault(key, skip)

    def cover(self, key: str, depth: int) -> None:
        """Account for a URL that was captured under another one, which redirects to it."""
        self._passed_over.pop(key, None)
        self._frontier.mark(key, depth)

    def offer_all(self, links: Iterable[Link], *, page_url: str, depth: int, committed: int) -> None:
        """Admit links at ``depth``, or keep the reason why not.

        Most links of a page are known. Membership is asked for first, and of the URL itself, which most often is its own key.
        """
        knows = self._frontier.knows
        off_scope = self._off_scope
        for link in links:
            url = link.url
            if url in off_scope or knows(url, depth):
                continue
            key = dedupe_key(url)
            if key != url and knows(key, depth):
                continue
            passed_over = self._passed_over.get(key)
            if passed_over is None or passed_over.reason is not SkipReason.OFF_SCOPE:  # the one reason that no better offer changes
                self._offer(link, key, page_url, depth, committed)

    def _offer(self, link: Link, key: str, page_url: str, depth: int, committed: int) -> None:
        verdict = self._judge(link, page_url, depth, committed)
        if isinstance(verdict, float):
            self._passed_over.pop(key, None)
            self._frontier.push(link.url, key, depth, score=verdict)
            return
        reason, detail = verdict
        if key not in self._passed_over:
            self._passed_over[key] = PageSkip(url=link.url, reason=reason, depth=depth, detail=detail)

    def _judge(self, link: Link, page_url: str, depth: int, committed: int) -> float | tuple[SkipReason, str | None]:
        policy = self._policy
        if policy.same_host and not (link.url.startswith(self._seed_root) or same_host(link.url, self._seed_url)):
            self._off_scope.add(link.url)
            return SkipReason.OFF_SCOPE, None
        if link.nofollow and not policy.follow_nofollow:
            return SkipReason.NOFOLLOW, None
        if depth > policy.max_depth:
            return SkipReason.MAX_DEPTH, None
        trap = self._traps.admit(link.url)
        if trap is not None:
            self._trapped = True
            return SkipReason.TRAP, str(trap)
        if policy.should_follow is None:
            return 0.0
        context = FollowContext(page_url=page_url, depth=depth - 1, seed_url=self._seed_url, committed=committed)
        answer = policy.should_follow(link, context)
        return (SkipReason.FILTERED, None) if answer is False else _score(answer)
