"""The clock of a host, in virtual time: no two starts closer than the delay, nothing inside a pause, nothing held after a cancel."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from forage.errors import FetchErrorKind
from forage.fetch import ClockState, HostClock, WaitReason
from forage.fetch.politeness import HostClocks, WaitTooLongError


def clock(**options: float) -> HostClock:
    return HostClock("site.test", **{"delay": 1.0, "max_crawl_delay": 60.0, "max_pause": 120.0, **options})  # type: ignore[arg-type]


async def start(host: HostClock, *, page: bool = True) -> float:
    async with host.request(page=page):
        return trio.current_time()


async def test_starts_are_the_delay_apart(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=2.0)
    assert [await start(host) for _ in range(3)] == [0.0, 2.0, 4.0]
    await trio.sleep(10)
    assert await start(host) == 14.0


async def test_spacing_counts_from_start_to_start_not_from_the_end(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=2.0)
    async with host.request():
        await trio.sleep(1.5)
    assert await start(host) == 2.0


async def test_the_largest_delay_is_in_force(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0)
    host.set_crawl_delay("http://site.test", 3.0)
    host.set_crawl_delay("https://site.test", 5.0)
    assert host.delay == 5.0
    assert [await start(host) for _ in range(2)] == [0.0, 5.0]
    host.set_crawl_delay("https://site.test", None)
    assert await start(host) == 8.0
    host.set_crawl_delay("http://site.test", 0.0)
    assert await start(host) == 9.0


async def test_robots_requests_are_spaced_like_all_others(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0)
    await start(host, page=False)
    host.set_crawl_delay("a", 7.0)
    assert await start(host) == 7.0
    assert await start(host, page=False) == 14.0


async def test_a_crawl_delay_above_the_ceiling_lets_one_page_through(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0, max_crawl_delay=60.0)
    await start(host, page=False)
    host.set_crawl_delay("a", 600.0)
    assert await start(host) == 1.0
    with pytest.raises(WaitTooLongError) as caught:
        await start(host)
    assert (caught.value.kind, caught.value.seconds) == (FetchErrorKind.CRAWL_DELAY_TOO_LONG, 600.0)
    await trio.sleep(560)
    assert await start(host) == 601.0  # the rest of the wish is short enough to be waited for


async def test_a_pause_holds_everybody_and_is_never_shortened(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0)
    host.pause(30)
    host.pause(5)
    starts: list[float] = []

    async def one() -> None:
        starts.append(await start(host))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert starts == [30.0, 31.0, 32.0]


async def test_a_pause_that_begins_while_a_request_waits_holds_it_too(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=10.0)
    await start(host)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start, host)
        await trio.sleep(9)
        host.pause(50)
        nursery.cancel_scope.deadline = 58.9
    assert host.state().since_start == pytest.approx(58.9)
    assert await start(host) == 59.0


async def test_a_pause_above_the_ceiling_fails_at_once(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(max_pause=120.0)
    host.pause(3120)
    with pytest.raises(WaitTooLongError) as caught:
        await start(host)
    assert (caught.value.kind, caught.value.seconds, trio.current_time()) == (FetchErrorKind.HOST_PAUSED, 3120.0, 0.0)
    await trio.sleep(3000)
    assert await start(host) == 3120.0


@pytest.mark.parametrize("per_host", [1, 3])
async def test_no_more_than_per_host_requests_are_in_flight(autojump_clock: trio.testing.MockClock, per_host: int) -> None:
    host = clock(delay=0.0, per_host=per_host)
    now, most = 0, 0

    async def one() -> None:
        nonlocal now, most
        async with host.request():
            now += 1
            most = max(most, now)
            await trio.sleep(1)
            now -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(7):
            nursery.start_soon(one)
    assert most == per_host


async def test_waiters_start_in_the_order_in_which_they_came(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0)
    order: list[int] = []

    async def one(number: int) -> None:
        await trio.sleep(number / 100)
        async with host.request():
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in (3, 1, 2, 0):
            nursery.start_soon(one, number)
    assert order == [0, 1, 2, 3]


async def test_a_cancelled_waiter_costs_the_others_nothing(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=10.0)
    await start(host)
    with trio.move_on_after(3):
        await start(host)
    assert host.idle is False
    assert await start(host) == 10.0
    await trio.sleep(10)
    assert host.idle


async def test_a_slow_server_is_asked_more_slowly_and_recovers(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=1.0)
    host.observe(8.0)
    assert host.delay == 4.0
    await start(host)
    assert await start(host) == 4.0
    for _ in range(4):
        host.observe(0.1)
    assert host.delay == 1.0  # never below the policy's
    host.observe(10_000.0)
    assert host.delay == 30.0


async def test_without_a_delay_nothing_adapts(autojump_clock: trio.testing.MockClock) -> None:
    host = clock(delay=0.0)
    host.observe(100.0)
    assert host.delay == 0.0


async def test_waits_are_reported_with_their_reason(autojump_clock: trio.testing.MockClock) -> None:
    waits: list[tuple[str, float, WaitReason]] = []
    host = HostClock("site.test", delay=1.0, max_crawl_delay=60.0, max_pause=60.0, on_wait=lambda *wait: waits.append(wait))
    await start(host)
    await start(host)
    host.set_crawl_delay("a", 3.0)
    await start(host)
    host.pause(9)
    await start(host)
    assert waits == [
        ("site.test", 1.0, WaitReason.DELAY),
        ("site.test", 4.0, WaitReason.CRAWL_DELAY),
        ("site.test", 13.0, WaitReason.PAUSE),
    ]


async def test_politeness_survives_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    old = clock(delay=5.0)
    await start(old)
    old.pause(20)
    await trio.sleep(2)
    state = old.state()
    assert state == ClockState(since_start=2.0, paused_for=18.0)
    new = clock(delay=5.0)
    new.restore(state)
    assert await start(new) == 20.0
    fresh = clock(delay=5.0)
    fresh.restore(ClockState(since_start=1.0))
    assert await start(fresh) == 24.0


async def test_clocks_that_no_longer_matter_are_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    clocks = HostClocks(lambda host: HostClock(host, delay=1.0, max_crawl_delay=60.0, max_pause=60.0))
    paused = clocks.of("paused")
    paused.pause(3600)
    await start(clocks.of("quiet"))
    await trio.sleep(5)
    for number in range(10_050):
        clocks.of(f"host{number}")
    assert clocks.of("paused") is paused
    assert len(clocks.states()) < 200


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3), st.sampled_from([None, 0.5, 2.0, 7.0])), min_size=1, max_size=12))
def test_whatever_comes_when_starts_keep_their_distance(requests: list[tuple[float, float, float | None]]) -> None:
    """Tasks arrive at any times, hold their slot for any time, and some answers pause the host."""
    starts: list[float] = []
    pauses: list[tuple[float, float]] = []

    async def main() -> None:
        host = clock(delay=1.5)

        async def one(arrival: float, takes: float, pause: float | None) -> None:
            await trio.sleep(arrival)
            async with host.request():
                starts.append(trio.current_time())
                await trio.sleep(takes)
                if pause is not None:
                    host.pause(pause)
                    pauses.append((trio.current_time(), trio.current_time() + pause))

        async with trio.open_nursery() as nursery:
            for request in requests:
                nursery.start_soon(one, *request)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(starts) == len(requests)
    assert all(later - sooner >= 1.5 - 1e-9 for sooner, later in pairwise(starts))
    assert not [s for s in starts for begin, end in pauses if begin <= s < end - 1e-9 and s > begin]
