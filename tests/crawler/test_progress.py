"""The figures of a running crawl."""

from __future__ import annotations

from forage.crawler import CrawlProgress, HostWait, PageCaptured, crawl_stream
from forage.crawler.progress import Waits
from tests.support.generated_site import open_generated_site


def test_waits_are_soonest_first_and_forgotten_when_over() -> None:
    waits = Waits()
    waits.note("b.test", 5.0, "delay", now=0.0)
    waits.note("a.test", 5.0, "retry", now=0.0)
    waits.note("c.test", 2.0, "host-paused", now=0.0)
    waits.note("c.test", 3.0, "delay", now=0.0)
    assert waits.current(1.0) == (
        HostWait(host="c.test", seconds=2.0, why="delay"),
        HostWait(host="a.test", seconds=4.0, why="retry"),
        HostWait(host="b.test", seconds=4.0, why="delay"),
    )
    assert [wait.paused for wait in waits.current(1.0)] == [False, True, False]
    assert [wait.host for wait in waits.current(3.0)] == ["a.test", "b.test"]
    assert waits.current(5.0) == ()


def test_memory_of_waits_is_bounded_by_those_that_last() -> None:
    waits = Waits()
    for number in range(5_000):
        waits.note(f"{number}.test", float(number), "delay", now=float(number))
    assert len(waits._until) <= 1_001
    assert [wait.host for wait in waits.current(4_998.5)] == ["4999.test"]


def test_next_start_is_that_of_the_first_host_to_be_asked() -> None:
    assert CrawlProgress().next_start is None
    assert CrawlProgress(waits=(HostWait(host="a.test", seconds=2.0, why="delay"),)).next_start == 2.0


async def test_stream_tells_how_far_it_is() -> None:
    async with open_generated_site(40, busy=1) as site:
        async with crawl_stream(site.seed, site.policy(concurrency=4, delay=0.05)) as stream:
            assert stream.progress().captured == 0
            starts = []
            async for event in stream:
                found = stream.progress()
                starts.append(found.next_start)
                if isinstance(event, PageCaptured) and event.page.number == 10:
                    assert 10 <= found.captured + found.failed + found.skipped <= 12
                    assert found.hosts == len(site.servers)
                    assert found.waiting > 0
            assert any(start is not None and 0 < start <= 0.05 for start in starts)
        assert stream.manifest is not None
        counts, last = stream.manifest.counts, stream.progress()
        assert (last.captured, last.failed, last.skipped) == (counts.captured, counts.failed, counts.skipped)
        assert (last.waiting, last.under_way) == (0, 0)
