"""Lanes: each host's entries in order, a few at a time, and decisions that see no more than the order allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from forage.crawler import PageSkip, SkipReason
from forage.crawler.frontier import Entry
from forage.crawler.lanes import HostHistory, HostTurn, Lanes, Outcome

Pause = Callable[[str], float]


def entry(host: str, index: int) -> Entry:
    url = f"http://{host}/{index}"
    return Entry(number=index, url=url, key=url, host=host, host_index=index, depth=0)


class Bench:
    """Lanes over work that only takes time; notes what was decided, worked on and delivered, and how much ran at a time."""

    def __init__(self, nursery: trio.Nursery, *, pause: Pause, per_host: int = 1, settle: frozenset[str] = frozenset()) -> None:
        self.decided: list[tuple[str, int]] = []
        self.delivered: list[str] = []
        self.running = self.most = 0
        self._pause = pause
        self._settle = settle
        self.lanes = Lanes(nursery, decide=self._decide, work=self._work, deliver=self._deliver, per_host=per_host, workers=per_host)

    def submit(self, host: str, *indexes: int) -> None:
        for index in indexes:
            self.lanes.submit(entry(host, index))

    def _decide(self, one: Entry, history: HostHistory) -> Outcome | None:
        self.decided.append((one.url, len(history.covered)))
        if one.url in self._settle:
            return Outcome(skip=PageSkip(url=one.url, reason=SkipReason.DUPLICATE, depth=0))
        return None

    async def _work(self, one: Entry, turn: HostTurn | None) -> Outcome:
        self.running += 1
        self.most = max(self.most, self.running)
        await trio.sleep(self._pause(one.url))
        self.running -= 1
        return Outcome(covered=(one.url,))

    def _deliver(self, one: Entry, outcome: Outcome) -> None:
        self.delivered.append(one.url)


async def test_a_host_is_worked_on_in_order_one_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, pause=lambda url: 5 - int(url[-1]))
        bench.submit("a", 0, 1, 2, 3)
    assert bench.delivered == [f"http://a/{n}" for n in range(4)]
    assert bench.most == 1
    assert bench.decided == [(f"http://a/{n}", n) for n in range(4)]


async def test_hosts_do_not_wait_for_each_other(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, pause=lambda url: 100 if "//slow" in url else 1)
        bench.submit("slow", 0, 1)
        for host in "abc":
            bench.submit(host, 0, 1, 2)
    assert all("slow" in url for url in bench.delivered[-2:])
    assert bench.most == 4


@pytest.mark.parametrize("per_host", [1, 2, 3])
async def test_a_decision_sees_the_host_up_to_per_host_entries_before_and_never_more(
    per_host: int, autojump_clock: trio.testing.MockClock
) -> None:
    for pause in (lambda url: 1, lambda url: 9 - int(url[-1]), lambda url: int(url[-1])):
        async with trio.open_nursery() as nursery:
            bench = Bench(nursery, pause=pause, per_host=per_host)
            bench.submit("a", *range(8))
        assert bench.decided == [(f"http://a/{n}", max(0, n - per_host + 1)) for n in range(8)]
        assert bench.most <= per_host
        assert sorted(bench.delivered) == [f"http://a/{n}" for n in range(8)]


async def test_what_history_settles_is_not_worked_on(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, pause=lambda _: 1, settle=frozenset({"http://a/1"}))
        bench.submit("a", 0, 1, 2)
        began = trio.current_time()
    assert bench.delivered == ["http://a/0", "http://a/1", "http://a/2"]
    assert trio.current_time() - began == 2


async def test_an_idle_host_has_no_task_and_goes_on_with_its_history(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, pause=lambda _: 1)
        bench.submit("a", 0, 1)
        await trio.sleep(10)
        assert not nursery.child_tasks
        bench.submit("a", 2)
    assert bench.decided[-1] == ("http://a/2", 2)


async def test_first_requests_of_a_host_start_in_the_order_of_its_entries(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[str] = []

    async def work(one: Entry, turn: HostTurn | None) -> Outcome:
        await trio.sleep(9 - one.host_index)  # whoever is later is ready earlier
        if one.host_index in (2, 4, 5):  # these never ask
            return Outcome()
        assert turn is not None
        if not turn.take():
            await turn.wait()
        asked.append(one.url)
        return Outcome()

    async with trio.open_nursery() as nursery:
        lanes = Lanes(nursery, decide=lambda *_: None, work=work, deliver=lambda *_: None, per_host=8, workers=8)
        for index in range(8):
            lanes.submit(entry("a", index))
    assert asked == [f"http://a/{n}" for n in (0, 1, 3, 6, 7)]


async def test_an_entry_that_is_given_up_in_line_holds_nobody_back(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[int] = []

    async def work(one: Entry, turn: HostTurn | None) -> Outcome:
        assert turn is not None
        with trio.move_on_after(1 if one.host_index == 1 else 100):
            if one.host_index == 0:
                await trio.sleep(5)
            if not turn.take():
                await turn.wait()
            asked.append(one.host_index)
        return Outcome()

    async with trio.open_nursery() as nursery:
        lanes = Lanes(nursery, decide=lambda *_: None, work=work, deliver=lambda *_: None, per_host=4, workers=4)
        for index in range(4):
            lanes.submit(entry("a", index))
    assert asked == [0, 2, 3]


async def test_what_work_raises_ends_the_nursery(autojump_clock: trio.testing.MockClock) -> None:
    def fail(url: str) -> float:
        raise LookupError(url)

    with pytest.RaisesGroup(LookupError):
        async with trio.open_nursery() as nursery:
            Bench(nursery, pause=fail).submit("a", 0, 1)
