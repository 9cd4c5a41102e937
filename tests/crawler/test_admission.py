"""Which links enter the frontier, and what is said of those that do not."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from forage.crawler import CrawlPolicy, FollowContext, Link, PageSkip, SkipReason, dedupe_key
from forage.crawler.admission import Admission
from forage.crawler.frontier import Frontier
from forage.crawler.traps import TrapBudget

SEED = "https://site.test/"


class Gate:
    """An admission with its frontier, under a policy."""

    def __init__(self, **options: Any) -> None:
        policy = CrawlPolicy(**{"max_depth": 3, **options})
        self.frontier = Frontier(scored=policy.should_follow is not None)
        self.admission = Admission(self.frontier, policy, SEED, TrapBudget(now=date(2026, 1, 1)))

    def offer(self, url: str, *, depth: int = 1, nofollow: bool = False) -> None:
        link = Link(kind="a", url=url, nofollow=nofollow)
        self.admission.offer_all([link], page_url=SEED, depth=depth, committed=5)

    @property
    def waiting(self) -> list[str]:
        return [url for url, _ in self.frontier.drain()]

    @property
    def outside(self) -> list[tuple[str, SkipReason]]:
        return [(skip.url, skip.reason) for skip in self.admission.passed_over]


@pytest.mark.parametrize(
    ("url", "nofollow", "depth", "reason"),
    [
        ("https://other.test/", False, 1, SkipReason.OFF_SCOPE),
        ("https://site.test:8443/", False, 1, SkipReason.OFF_SCOPE),
        ("https://other.test/", True, 9, SkipReason.OFF_SCOPE),
        ("https://site.test/a", True, 1, SkipReason.NOFOLLOW),
        ("https://site.test/a", True, 9, SkipReason.NOFOLLOW),
        ("https://site.test/a", False, 4, SkipReason.MAX_DEPTH),
    ],
)
def test_what_stays_outside_says_why(url: str, nofollow: bool, depth: int, reason: SkipReason) -> None:
    gate = Gate()
    gate.offer(url, nofollow=nofollow, depth=depth)
    assert gate.waiting == []
    assert gate.outside == [(url, reason)]
    assert gate.admission.passed_over[0].depth == depth


@pytest.mark.parametrize("url", ["http://site.test/a", "https://site.test/a"])
def test_either_default_port_of_the_host_is_in_scope(url: str) -> None:
    gate = Gate()
    gate.offer(url)
    assert len(gate.waiting) == 1


def test_policy_opens_other_hosts_and_nofollow_links() -> None:
    gate = Gate(same_host=False, follow_nofollow=True)
    gate.offer("https://other.test/", nofollow=True)
    assert gate.waiting == ["https://other.test/"]


@pytest.mark.parametrize("worse", [{"nofollow": True}, {"depth": 9}])
def test_a_better_offer_overtakes_a_reason(worse: dict[str, Any]) -> None:
    gate = Gate()
    gate.offer("https://site.test/a", **worse)
    gate.offer("https://site.test/a")
    assert gate.outside == []
    assert gate.waiting == ["https://site.test/a"]


def test_a_worse_offer_changes_nothing() -> None:
    gate = Gate()
    gate.offer("https://site.test/a")
    gate.offer("https://site.test/a", nofollow=True, depth=9)
    assert (gate.waiting, gate.outside) == (["https://site.test/a"], [])


def test_the_first_reason_and_spelling_stay() -> None:
    gate = Gate()
    gate.offer("https://site.test/p?b=1&a=2", depth=9)
    gate.offer("https://site.test/p?a=2&b=1", nofollow=True)
    assert gate.outside == [("https://site.test/p?b=1&a=2", SkipReason.MAX_DEPTH)]


def test_traps_are_bounded_and_named() -> None:
    gate = Gate()
    for month in range(1, 500):
        gate.offer(f"https://site.test/cal?y={month}")
    reasons = {skip.reason for skip in gate.admission.passed_over}
    assert reasons == {SkipReason.TRAP}
    assert gate.admission.trapped
    assert all(skip.detail for skip in gate.admission.passed_over)
    assert len(gate.waiting) + len(gate.outside) == 499


def test_should_follow_filters_orders_and_is_told_the_state() -> None:
    told: list[FollowContext] = []

    def judge(link: Link, context: FollowContext) -> bool | float:
        told.append(context)
        return {"no": False, "yes": True, "high": 2, "low": -1.5}[link.url.rpartition("/")[2]]

    gate = Gate(should_follow=judge)
    for name in ("low", "no", "yes", "high"):
        gate.offer(f"https://site.test/{name}")
    gate.offer("https://other.test/yes")
    assert gate.outside == [("https://site.test/no", SkipReason.FILTERED), ("https://other.test/yes", SkipReason.OFF_SCOPE)]
    assert [url.rpartition("/")[2] for url in gate.waiting] == ["high", "yes", "low"]
    assert told == [FollowContext(page_url=SEED, depth=0, seed_url=SEED, committed=5)] * 4


def test_redirect_targets_are_covered_and_need_no_row() -> None:
    gate = Gate()
    gate.offer("https://site.test/t", nofollow=True)
    gate.admission.cover("https://site.test/t", 1)
    gate.offer("https://site.test/t")
    assert (gate.waiting, gate.outside) == ([], [])


def test_what_is_noted_counts_once_and_never_what_is_known() -> None:
    gate = Gate()
    gate.offer("https://site.test/a")
    for url in ("https://site.test/a", "https://out.test/", "https://out.test/"):
        gate.admission.note(PageSkip(url=url, reason=SkipReason.OFF_SCOPE, depth=1), dedupe_key(url))
    assert gate.outside == [("https://out.test/", SkipReason.OFF_SCOPE)]
