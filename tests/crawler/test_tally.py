"""The account of a crawl: rows in order, figures by host, budgets that were used up."""

from __future__ import annotations

from forage.crawler import CrawlManifest, HostStatistics, Page, PageFailure, PageSkip, SitemapCounters, SkipReason
from forage.crawler.frontier import Entry
from forage.crawler.lanes import Outcome
from forage.crawler.tally import BUDGETS, Tally


def entry(number: int, url: str) -> Entry:
    return Entry(number=number, url=url, key=url, host=url.split("/")[2], host_index=0, depth=1)


def page(number: int, url: str, size: int = 10) -> Page:
    members = {"status": 200, "depth": 1, "body_hash": "0" * 64, "fetched_at": "2026-01-01T00:00:00.000Z"}
    return Page(number=number, url=url, requested_url=url, source_id=url, source_ref=url, body_bytes=size, **members)  # type: ignore[arg-type]  # a test's defaults


def failure(number: int, url: str) -> PageFailure:
    return PageFailure(number=number, url=url, code="timeout", message="m", depth=1)


def finished(tally: Tally) -> CrawlManifest:
    times = {"started_at": "2026-01-01T00:00:00.000Z", "ended_at": "2026-01-01T00:00:01.000Z"}
    return tally.manifest(seed="s", mode="live", policy={}, policy_digest="0" * 64, tool="t", sitemaps=SitemapCounters(), **times)


def test_rows_keep_their_order_and_hosts_are_counted() -> None:
    tally = Tally()
    tally.commit(entry(0, "http://b.test/0"), Outcome(page=page(0, "http://b.test/0")))
    tally.commit(entry(1, "http://a.test/1"), Outcome(failure=failure(1, "http://a.test/1")))
    tally.commit(entry(2, "http://b.test/2"), Outcome(page=page(2, "http://b.test/2", 5), warnings=("w",)))
    tally.commit(entry(3, "http://a.test/3"), Outcome(skip=PageSkip(url="http://a.test/3", reason=SkipReason.DUPLICATE, depth=1)))
    tally.leave([PageSkip(url="http://c.test/", reason=SkipReason.OFF_SCOPE, depth=2)])
    tally.warn("v")
    manifest = finished(tally)
    assert [p.number for p in manifest.pages] == [0, 2]
    assert [s.url for s in manifest.skips] == ["http://a.test/3", "http://c.test/"]
    assert manifest.hosts == (
        HostStatistics(host="a.test", failures=1, skips=1),
        HostStatistics(host="b.test", pages=2, body_bytes=15),
        HostStatistics(host="c.test", skips=1),
    )
    assert manifest.warnings == ("w", "v")
    assert (manifest.counts.seen, manifest.truncated, manifest.budgets_hit) == (5, False, ())


def test_page_that_a_redirect_led_to_counts_for_the_host_that_was_asked() -> None:
    tally = Tally()
    tally.commit(entry(0, "http://a.test/0"), Outcome(page=page(0, "http://www.a.test/0")))
    assert [host.host for host in finished(tally).hosts] == ["a.test"]


def test_every_budget_that_left_pages_unvisited_is_named_once_in_a_fixed_order() -> None:
    for reason in SkipReason:
        tally = Tally()
        skips = [PageSkip(url=f"http://a.test/{n}", reason=reason, depth=1) for n in range(2)]
        tally.leave(skips)
        manifest = finished(tally)
        assert manifest.truncated is (reason in BUDGETS)
        assert manifest.budgets_hit == ((reason.value,) if reason in BUDGETS else ())
    tally = Tally()
    tally.leave(PageSkip(url="http://a.test/", reason=reason, depth=1) for reason in reversed(SkipReason))
    assert finished(tally).budgets_hit == tuple(reason.value for reason in SkipReason if reason in BUDGETS)
