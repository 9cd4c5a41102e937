"""A crawl with a state file goes on after it was ended: nothing is lost, nothing is asked twice, politeness is kept."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from forage.crawler import CrawlManifest, CrawlPolicy, PageCaptured, Seed, SkipReason, crawl, crawl_many, crawl_stream
from forage.crawler.journal import StateError
from forage.egress import EgressPolicy
from forage.errors import InvalidPolicyError
from forage.snapshots import MemorySnapshotStore
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page

HTML = [("Content-Type", "text/html; charset=utf-8")]
PAGES = 20


def tree(request: RawRequest) -> Answer:
    """A binary tree of pages, and a 404 for everything else."""
    name = request.target.strip("/") or "0"
    if not name.isdigit() or int(name) >= PAGES:
        return page(b"", status="404 Not Found")
    children = [n for n in (2 * int(name) + 1, 2 * int(name) + 2) if n < PAGES]
    return page("".join(f'<a href="/{n}">x</a>' for n in children).encode(), headers=HTML)


def policy_for(*servers: RawServer, **options: object) -> CrawlPolicy:
    egress = EgressPolicy(test_loopback_origins=tuple(s.origin for s in servers))
    return CrawlPolicy(**{"delay": 0.0, "max_pages": 100, "max_depth": 50, "egress": egress, **options})  # type: ignore[arg-type]  # a test's keyword options


def without_times(manifest: CrawlManifest) -> CrawlManifest:
    return attrs.evolve(
        manifest, started_at="", ended_at="", pages=tuple(attrs.evolve(p, source_ref="", fetched_at="") for p in manifest.pages)
    )


async def crawl_some(server: RawServer, policy: CrawlPolicy, state: Path, pages: int) -> CrawlManifest:
    """Stop after so many pages, as an interrupt does."""
    captured = 0
    async with crawl_stream(server.origin, policy, state=state) as stream:
        async for event in stream:
            captured += isinstance(event, PageCaptured)
            if captured == pages:
                stream.stop()
        assert stream.manifest is not None
        return stream.manifest


async def test_interrupted_crawl_goes_on_and_ends_in_the_manifest_of_an_undisturbed_one(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        policy = policy_for(server)
        whole = await crawl(server.origin, policy)
        server.requests.clear()
        first = await crawl_some(server, policy, tmp_path / "state", 7)
        assert {s.reason for s in first.skips} == {SkipReason.INTERRUPTED}
        resumed = await crawl(server.origin, policy, state=tmp_path / "state")
        assert without_times(resumed) == without_times(whole)
        asked = [r.target for r in server.requests if r.target != "/robots.txt"]
        assert len(asked) - len(set(asked)) <= 1  # what was in flight


async def test_finished_crawl_is_told_again_without_a_request(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        policy = policy_for(server)
        once = await crawl(server.origin, policy, state=tmp_path / "state")
        count = len(server.requests)
        again = await crawl(server.origin, policy, state=tmp_path / "state")
        assert len(server.requests) == count
    assert again.pages == once.pages
    assert again.started_at == once.started_at


async def test_cancelled_crawl_goes_on(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        policy = policy_for(server, concurrency=4)
        for seconds in (0.01, 0.02, 0.03, 0.05):
            with trio.move_on_after(seconds):
                await crawl(server.origin, policy, state=tmp_path / "state")
        manifest = await crawl(server.origin, policy, state=tmp_path / "state")
    assert len(manifest.pages) == PAGES


async def test_delay_is_kept_across_the_restart(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        policy = policy_for(server, delay=0.2)
        await crawl_some(server, policy, tmp_path / "state", 3)
        await crawl_some(server, policy, tmp_path / "state", 6)
        starts = [r.at for r in server.requests]
    # A little less than the delay: starts are measured where they arrive.
    assert all(later - earlier >= 0.17 for earlier, later in pairwise(starts))


async def test_pause_that_a_host_asked_for_is_kept_across_the_restart(tmp_path: Path) -> None:
    busy = Answer(steps=(b"HTTP/1.1 429 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n",), end="keep")

    def respond(request: RawRequest) -> Answer:
        if request.target == "/1" and [r.target for r in server.requests].count("/1") == 1:
            return busy
        return tree(request)

    async with open_raw_server(respond) as server:
        policy = policy_for(server)
        with trio.move_on_after(0.5):
            await crawl(server.origin, policy, state=tmp_path / "state")
        paused = next(r.at for r in server.requests if r.target == "/1")
        server_requests = len(server.requests)
        await crawl(server.origin, policy, state=tmp_path / "state")
        assert server.requests[server_requests].at - paused >= 1.9


async def test_state_of_another_policy_is_refused(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        await crawl(server.origin, policy_for(server), state=tmp_path / "state")
        with pytest.raises(InvalidPolicyError) as caught:
            await crawl(server.origin, policy_for(server, max_pages=5), state=tmp_path / "state")
        assert caught.value.field == "state"
        with pytest.raises(InvalidPolicyError):
            async with crawl_stream(server.origin, policy_for(server, max_pages=5), state=tmp_path / "state") as stream:
                _ = [event async for event in stream]


@pytest.mark.parametrize(
    "changed",
    [
        {"headers": {"Authorization": "Bearer b"}},
        {"headers": {}},
        {"user_agent": "another/1"},
        {"max_response_bytes": 10},
        {"render": "never"},
        {"url": "/3"},
    ],
    ids=str,
)
async def test_state_of_a_seed_with_other_options_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    async with open_raw_server(tree) as server:
        known: dict[str, Any] = {"url": server.origin, "id": "site", "headers": {"authorization": "Bearer a"}}
        await crawl(Seed(**known), policy_for(server), state=tmp_path / "state")
        again = await crawl(Seed(**{**known, "headers": {"Authorization": "Bearer a"}}), policy_for(server), state=tmp_path / "state")
        assert len(again.pages) == PAGES
        if "url" in changed:
            changed = {"url": server.origin + changed["url"]}
        other = Seed(**{**known, **changed})
        with pytest.raises(InvalidPolicyError) as caught:
            await crawl(other, policy_for(server), state=tmp_path / "state")
        assert caught.value.field == "state"
        with pytest.raises(InvalidPolicyError):
            async with crawl_stream(other, policy_for(server), state=tmp_path / "state") as stream:
                _ = [event async for event in stream]
        with pytest.raises(InvalidPolicyError):
            async with crawl_many([other], policy_for(server), state=tmp_path / "state") as crawls:
                _ = [manifest async for manifest in crawls]
    assert b"Bearer a" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
async def test_file_that_is_no_state_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(StateError):
        await crawl("http://127.0.0.1:1/", state=path)
    assert path.read_bytes() == content


async def test_state_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        await crawl("http://127.0.0.1:1/", state=tmp_path / "no" / "state")


async def test_state_in_use_is_refused(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        policy = policy_for(server, delay=0.2)
        async with crawl_stream(server.origin, policy, state=tmp_path / "state") as stream:
            await stream.__anext__()
            with pytest.raises(StateError, match="in use"):
                await crawl(server.origin, policy, state=tmp_path / "state")


async def test_many_seeds_share_clocks_and_end_one_by_one() -> None:
    async with open_raw_server(tree) as one, open_raw_server(tree) as two:
        seeds = [f"{one.origin}/7", f"{one.origin}/8", f"{two.origin}/9"]
        store = MemorySnapshotStore()
        async with crawl_many(seeds, policy_for(one, two, delay=0.2, concurrency=8), store=store) as crawls:
            manifests = [manifest async for manifest in crawls]
        assert {m.seed: len(m.pages) for m in manifests} == {seeds[0]: 3, seeds[1]: 3, seeds[2]: 2}
        starts = [r.at for r in one.requests]
        assert all(later - earlier >= 0.17 for earlier, later in pairwise(starts))
        assert [r.target for r in one.requests].count("/robots.txt") == 1


async def test_many_seeds_resume_from_one_state(tmp_path: Path) -> None:
    async with open_raw_server(tree) as server:
        seeds = [f"{server.origin}/{n}" for n in (1, 2)]
        policy = policy_for(server)
        async with crawl_many(seeds, policy, state=tmp_path / "state") as crawls:
            first = await crawls.__anext__()
            crawls.stop()
            rest = [m async for m in crawls]
        assert len(rest) == 1
        async with crawl_many(seeds, policy, state=tmp_path / "state") as crawls:
            manifests = [m async for m in crawls]
    assert sorted(len(m.pages) for m in manifests) == [7, 12]
    assert first.seed in seeds


async def test_seed_given_twice_is_refused() -> None:
    with pytest.raises(InvalidPolicyError):
        async with crawl_many(["https://site.test", "https://site.test/"]):
            pass


@pytest.mark.parametrize("wish", ["999999999999", "999999999999999999", "Fri, 31 Dec 9999 23:59:59 -2359"])
async def test_wish_for_a_pause_beyond_the_calendar_does_not_end_a_crawl_that_keeps_a_state(tmp_path: Path, wish: str) -> None:
    busy = page(b"", status="429 Too Many Requests", headers=[("Retry-After", wish)])
    async with open_raw_server({"/": [page(b'<a href="/busy">x</a>', headers=HTML)], "/busy": [busy]}) as server:
        manifest = await crawl(server.origin, policy_for(server, retries=0), state=tmp_path / "state")
        assert len(manifest.pages) == 1
        assert manifest.counts.seen == 2
        again = await crawl(server.origin, policy_for(server, retries=0), state=tmp_path / "state")
        assert again.counts == manifest.counts
