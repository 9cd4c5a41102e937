"""What a caller's functions may do to a crawl: their errors come out as they are, at each of the three doors; a wrong answer is a
typed error; what is trouble of the network or of a store is a row of the manifest.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from forage.crawler import CrawlManifest, CrawlPolicy, crawl, crawl_many, crawl_stream
from forage.egress import DnsAnswers, JudgedUrl
from forage.errors import BrowserError, EgressCode, EgressUnreachableError, InvalidPolicyError
from forage.snapshots import MemorySnapshotStore, Snapshot
from tests.support.virtual_hosts import Asked, VirtualAnswer, VirtualHosts, VirtualResolver

SEED = "https://a.test/"
HTML = (("Content-Type", "text/html; charset=utf-8"),)

Door = Callable[..., Awaitable[CrawlManifest | None]]


class CallersMistake(Exception):  # noqa: N818 - it stands for any exception of a caller
    """What a function of the caller raises."""


async def one(policy: CrawlPolicy, **seams: Any) -> CrawlManifest | None:
    return await crawl(SEED, policy, **seams)


async def streamed(policy: CrawlPolicy, **seams: Any) -> CrawlManifest | None:
    async with crawl_stream(SEED, policy, **seams) as stream:
        _ = [event async for event in stream]
    return stream.manifest


async def many(policy: CrawlPolicy, **seams: Any) -> CrawlManifest | None:
    found = None
    async with crawl_many([SEED], policy, **seams) as crawls:
        async for manifest in crawls:
            found = manifest
    return found


DOORS = pytest.mark.parametrize("door", [one, streamed, many])


def answers(target: JudgedUrl, asked: Asked) -> VirtualAnswer:
    if target.url.endswith("/robots.txt"):
        return VirtualAnswer(status=404)
    body = b"".join(b'<a href="/%d">x</a>' % n for n in range(9)) if target.url == SEED else b""
    return VirtualAnswer(headers=HTML, body=body, delay=0.01)


async def try_door(door: Door, **options: Any) -> CrawlManifest | None:
    """A crawl of a small site through one door; options that are seams go there, the rest to the policy."""
    names = {"store", "renderer", "resolver", "dialer", "wire", "state", "utc_now"}
    seams = {name: value for name, value in options.items() if name in names}
    policy = CrawlPolicy(**{"delay": 0.0, **{name: value for name, value in options.items() if name not in names}})
    async with trio.open_nursery() as nursery:
        seams = {"wire": VirtualHosts(nursery, answers), "resolver": VirtualResolver(), **seams}
        found = await door(policy, **seams)
        nursery.cancel_scope.cancel()
    return found


async def caught(door: Door, kind: type[BaseException] = CallersMistake, **options: Any) -> BaseException:
    """What comes out of the door, which must be no group."""

    async def through() -> BaseException | None:
        async with trio.open_nursery() as nursery:
            names = {"store", "renderer", "resolver", "dialer", "wire", "state", "utc_now"}
            seams: dict[str, Any] = {"wire": VirtualHosts(nursery, answers), "resolver": VirtualResolver()}
            seams |= {name: value for name, value in options.items() if name in names}
            policy = CrawlPolicy(**{"delay": 0.0, **{name: value for name, value in options.items() if name not in names}})
            came: BaseException | None = None
            try:
                await door(policy, **seams)
            except kind as exc:
                came = exc
            nursery.cancel_scope.cancel()
        return came

    error = await through()
    assert error is not None, "nothing was raised"
    return error


def mistaken(*_: object, **__: object) -> Any:
    raise CallersMistake


@DOORS
@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("kept", [False, True])
async def test_error_of_should_follow_comes_out_as_it_was_raised(
    door: Door, concurrency: int, kept: bool, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    state: dict[str, Any] = {"state": tmp_path / "state"} if kept else {}
    error = await caught(door, should_follow=mistaken, concurrency=concurrency, per_host=4, **state)
    assert type(error) is CallersMistake


@DOORS
async def test_error_of_should_follow_comes_out_of_a_replay_as_it_was_raised(door: Door, autojump_clock: trio.testing.MockClock) -> None:
    store = MemorySnapshotStore()
    await try_door(one, store=store)
    assert type(await caught(door, should_follow=mistaken, store=store, mode="replay")) is CallersMistake


@DOORS
async def test_group_that_a_caller_raises_comes_out_as_that_group(door: Door, autojump_clock: trio.testing.MockClock) -> None:
    group = ExceptionGroup("two", [CallersMistake(), ValueError()])

    def grouped(*_: object) -> bool:
        raise group

    error = await caught(door, ExceptionGroup, should_follow=grouped)
    assert isinstance(error, ExceptionGroup)
    assert (error.message, error.exceptions) == (group.message, group.exceptions)


@DOORS
@pytest.mark.parametrize("answer", [None, "yes", math.nan, (), 1j], ids=repr)
async def test_answer_of_should_follow_that_is_none_is_one_typed_error(
    door: Door, answer: object, autojump_clock: trio.testing.MockClock
) -> None:
    error = await caught(door, InvalidPolicyError, should_follow=lambda *_: answer)
    assert isinstance(error, InvalidPolicyError)
    assert error.field == "should_follow"


@DOORS
@pytest.mark.parametrize("answer", [True, 0, 1, -2.5, 10**400, math.inf, -math.inf], ids=repr)
async def test_bools_and_numbers_are_answers(door: Door, answer: float, autojump_clock: trio.testing.MockClock) -> None:
    manifest = await try_door(door, should_follow=lambda *_: answer)
    assert manifest is not None
    assert manifest.counts.captured == 10


def test_async_should_follow_is_refused_before_anything_starts() -> None:
    async def follow(*_: object) -> bool:
        return True

    with pytest.raises(InvalidPolicyError, match="should_follow"):
        CrawlPolicy(should_follow=follow)  # type: ignore[arg-type]  # that is the point


@attrs.frozen
class Rendered:
    html: str
    warnings: Sequence[str] = ()
    left_for: Sequence[str] = ()


class MistakenRenderer:
    async def render(self, url: str) -> Rendered:
        raise CallersMistake


class FailingRenderer:
    async def render(self, url: str) -> Rendered:
        raise BrowserError("it broke down")


class MistakenResolver:
    async def resolve(self, host: str) -> DnsAnswers:
        raise CallersMistake


class FailingResolver:
    async def resolve(self, host: str) -> DnsAnswers:
        raise EgressUnreachableError(EgressCode.DNS_FAILURE, host)


def no_clock() -> datetime:
    raise CallersMistake


@DOORS
@pytest.mark.parametrize(
    "options",
    [{"renderer": MistakenRenderer(), "render": "always"}, {"utc_now": no_clock}],
    ids=["renderer", "utc_now"],
)
async def test_error_of_a_seam_comes_out_as_it_was_raised(
    door: Door, options: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    assert type(await caught(door, **options)) is CallersMistake


@DOORS
async def test_several_errors_at_one_moment_come_out_in_one_group(door: Door, autojump_clock: trio.testing.MockClock) -> None:
    class Late:
        async def render(self, url: str) -> Rendered:
            if url != SEED:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                raise CallersMistake
            return Rendered(html="".join(f'<a href="/{n}">x</a>' for n in range(9)))

    error = await caught(door, ExceptionGroup, renderer=Late(), render="always", concurrency=8, per_host=3)
    assert isinstance(error, ExceptionGroup)
    assert {type(member) for member in error.exceptions} == {CallersMistake}


@DOORS
async def test_trouble_of_a_renderer_and_of_a_resolver_is_told_in_the_manifest(door: Door, autojump_clock: trio.testing.MockClock) -> None:
    manifest = await try_door(door, renderer=FailingRenderer(), render="always")
    assert manifest is not None
    assert all(any(note.startswith("render-failed") for note in page.warnings) for page in manifest.pages)
    for resolver in (FailingResolver(), MistakenResolver()):
        manifest = await try_door(door, resolver=resolver, obey_robots=False, retries=0)
        assert manifest is not None
        (failure,) = manifest.failures
        assert failure.code == "network"
        assert ("CallersMistake" in failure.message) == isinstance(resolver, MistakenResolver)


class MistakenStore(MemorySnapshotStore):
    async def put(self, snapshot: Snapshot) -> None:
        raise CallersMistake

    async def latest(self, source_id: str) -> Snapshot | None:
        raise CallersMistake


@DOORS
async def test_store_that_raises_costs_a_warning_a_page_and_no_page(door: Door, autojump_clock: trio.testing.MockClock) -> None:
    manifest = await try_door(door, store=MistakenStore())
    assert manifest is not None
    assert manifest.counts.captured == 10
    assert all("CallersMistake" in " ".join(page.warnings) and not page.stored for page in manifest.pages)
    replayed = await try_door(door, store=MistakenStore(), mode="replay")
    assert replayed is not None
    assert [failure.code for failure in replayed.failures] == ["store"] or replayed.counts.captured == 0


async def test_manifests_that_nobody_takes_hold_the_next_crawls_back(autojump_clock: trio.testing.MockClock) -> None:
    begun: set[str] = set()

    def note(target: JudgedUrl, asked: Asked) -> VirtualAnswer:
        begun.add(target.host)
        return VirtualAnswer(status=404)

    seeds = [f"https://h{number}.test/" for number in range(60)]
    async with trio.open_nursery() as nursery:
        wire = VirtualHosts(nursery, note)
        async with crawl_many(seeds, CrawlPolicy(delay=0.0), wire=wire, resolver=VirtualResolver()) as crawls:
            await trio.sleep(1000)
            assert len(begun) == 16
            await crawls.__anext__()
            await trio.sleep(1000)
            assert len(begun) == 17
            rest = [manifest async for manifest in crawls]
        nursery.cancel_scope.cancel()
    assert len(rest) == 59
    assert len(begun) == 60


async def test_crawls_that_have_ended_are_not_held(autojump_clock: trio.testing.MockClock) -> None:
    from forage.crawler.engine import Crawl

    gc.collect()
    before = sum(isinstance(found, Crawl) for found in gc.get_objects())
    async with trio.open_nursery() as nursery:
        wire = VirtualHosts(nursery, answers)
        seeds = [f"https://h{number}.test/" for number in range(20)]
        async with crawl_many(seeds, CrawlPolicy(delay=0.0), wire=wire, resolver=VirtualResolver()) as crawls:
            _ = [manifest async for manifest in crawls]
            gc.collect()
            assert sum(isinstance(found, Crawl) for found in gc.get_objects()) - before == 0
        nursery.cancel_scope.cancel()
