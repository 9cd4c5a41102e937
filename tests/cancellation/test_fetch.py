"""A fetch cancelled at every scheduler step leaves no descriptor, no task, no held turn of a host and no half-asked robots.txt."""

from __future__ import annotations

import trio

from forage.egress import EgressPolicy
from forage.fetch import Fetcher, HostClock
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page
from tests.support.stepping import cancel_at_every_step

PAGES = {
    "/robots.txt": page(b"User-agent: *\nDisallow: /closed\n"),
    "/a": page(b"", status="302 Found", headers=[("Location", "/b"), ("Set-Cookie", "s=1")]),
    "/b": page(b"<p>b</p>", headers=[("Content-Type", "text/html")]),
}


class Routes:
    """Every other request for /b is turned away."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, request: RawRequest) -> Answer:
        self._asked += request.target == "/b"
        return page(b"", status="503 Busy") if request.target == "/b" and self._asked % 2 else PAGES[request.target]


def fetcher_for(server: RawServer, **options: float) -> Fetcher:
    return Fetcher(egress=EgressPolicy(test_loopback_origins=(server.origin,)), delay=0.0, random=lambda: 0.0, **options)  # type: ignore[arg-type]


async def test_a_fetcher_of_its_own_leaves_nothing() -> None:
    async with open_raw_server(Routes()) as server:

        async def operation() -> None:
            async with fetcher_for(server) as fetcher:
                await fetcher.fetch(f"{server.origin}/a")

        assert await cancel_at_every_step(operation) > 10  # steps of a scheduler, of which the exchange needs few


async def test_a_shared_fetcher_goes_on_after_each_cancellation() -> None:
    """Slots, turns and the robots.txt lock are given back: the next fetch of the same host always succeeds at once."""
    async with open_raw_server(Routes()) as server, fetcher_for(server) as fetcher:

        async def cancelled_then_good() -> None:
            fetcher.clock(server.host_header).refusals = 0
            try:
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(fetcher.fetch, f"{server.origin}/a")
            finally:
                with trio.move_on_after(5, shield=True):
                    result = await fetcher.fetch(f"{server.origin}/b")
                assert result.ok
                assert fetcher.clock(server.host_header).idle

        await cancelled_then_good()
        for step in range(60):
            with trio.CancelScope() as scope:
                trio.lowlevel.add_instrument(instrument := _CancelAt(scope, step))
                try:
                    await cancelled_then_good()
                finally:
                    trio.lowlevel.remove_instrument(instrument)


class _CancelAt(trio.abc.Instrument):
    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._left == 0:
            self._scope.cancel()
        self._left -= 1


async def test_a_clock_cancelled_at_every_step_is_idle_again() -> None:
    clock = HostClock("site.test", delay=0.001, max_crawl_delay=60.0, max_pause=60.0, per_host=2)

    async def one() -> None:
        async with clock.request():
            await trio.lowlevel.checkpoint()

    async def operation() -> None:
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(one)
        finally:
            with trio.move_on_after(5, shield=True):
                await one()

    await cancel_at_every_step(operation)
    await trio.sleep(0.01)
    assert clock.idle
