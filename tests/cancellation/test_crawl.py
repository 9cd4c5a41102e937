"""A crawl with a store and a state file, over real sockets, cancelled at every scheduler step and at random moments: nothing stays."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from forage.crawler import CrawlPolicy, crawl, crawl_stream
from forage.egress import EgressPolicy
from forage.snapshots import FilesystemSnapshotStore, resolve_source_ref
from tests.crawler.stress import assert_clean, cancel_at_random
from tests.support.folders import quick_folder
from tests.support.generated_site import open_generated_site
from tests.support.raw_server import RawServer, open_raw_server, page
from tests.support.stepping import cancel_at_every_step

ROUTES = {
    "/robots.txt": [page(b"User-agent: *\nDisallow: /closed\n")],
    "/": [page(b'<a href="/a">a</a><a href="/closed">c</a><a href="/moved">m</a>', headers=[("Content-Type", "text/html")])],
    "/a": [page(b"<p>a</p>", headers=[("Content-Type", "text/html")])],
    "/moved": [page(b"", status="302 Found", headers=[("Location", "/b")])],
    "/b": [page(b"<p>b</p>", headers=[("Content-Type", "text/html")])],
}


def policy_for(server: RawServer) -> CrawlPolicy:
    return CrawlPolicy(delay=0.0, concurrency=2, egress=EgressPolicy(test_loopback_origins=(server.origin,)))


@pytest.mark.slow
async def test_crawl_cancelled_at_every_step_leaves_no_descriptor_task_thread_temporary_or_lock(tmp_path: Path) -> None:
    roots = (tmp_path / f"{n}" for n in itertools.count())
    async with open_raw_server(ROUTES) as server:

        async def operation() -> None:
            root = next(roots)
            try:
                root.mkdir()
                await crawl(server.origin, policy_for(server), store=FilesystemSnapshotStore(root / "store"), state=root / "state")
            finally:
                assert_clean(root)

        await operation()
        threads = threading.active_count()
        steps = await cancel_at_every_step(operation)
        assert steps > 50
        assert threading.active_count() <= threads + 1


@pytest.mark.slow
async def test_large_crawl_cancelled_at_random_moments_leaves_nothing_and_goes_on() -> None:
    async with open_generated_site(300, seed=2) as site:
        with quick_folder() as folder:
            await cancel_at_random(site, folder, count=20, rng=random.Random(0))


async def test_what_a_cancelled_crawl_acknowledged_resolves(tmp_path: Path) -> None:
    async with open_raw_server(ROUTES) as server:
        store = FilesystemSnapshotStore(tmp_path)
        references = []
        async with crawl_stream(server.origin, policy_for(server), store=store) as stream:
            async for event in stream:
                if hasattr(event, "page"):
                    references.append(event.page.source_ref)
                if len(references) == 2:
                    break
        assert_clean(tmp_path)
        for reference in references:
            assert (await resolve_source_ref(store, reference)).ok


async def test_error_of_the_consumer_ends_the_crawl_and_arrives_unwrapped(tmp_path: Path) -> None:
    async with open_raw_server(ROUTES) as server:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with pytest.raises(LookupError, match="mine"):  # noqa: PT012 - what is raised has to cross the stream
            async with crawl_stream(server.origin, policy_for(server)) as stream:
                async for _ in stream:
                    raise LookupError("mine")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert trio.lowlevel.current_statistics().tasks_living <= tasks + 2
