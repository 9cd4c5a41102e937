"""A state file that was changed, cut or filled up costs requests or is refused; it never ends a crawl with another error."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forage
from forage.crawler import CrawlManifest, CrawlPolicy
from forage.crawler.journal import StateError
from forage.egress import EgressPolicy
from forage.errors import InvalidPolicyError
from forage.snapshots import MemorySnapshotStore, Snapshot
from tests.support.raw_server import Answer, RawServer, open_raw_server, page

HTML = [("Content-Type", "text/html; charset=utf-8")]
ROUTES = {
    "/": [page(b'<a href="/a">x</a><a href="/b">x</a>', headers=HTML)],
    "/a": [page(b"", headers=HTML)],
    "/b": [page(b"", headers=HTML)],
}


async def crawl(server: RawServer, **more: Any) -> CrawlManifest:
    policy = CrawlPolicy(delay=0.0, egress=EgressPolicy(test_loopback_origins=(server.origin,)))
    return await forage.crawl(server.origin, policy, **more)


def change(statement: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        with sqlite3.connect(path) as db:
            db.execute(statement)
        db.close()

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        change("UPDATE outcomes SET outcome = '{}'"),
        change("""UPDATE outcomes SET outcome = '{"links":[]}'"""),
        change("""UPDATE outcomes SET outcome = replace(outcome, '"a","http', '"a","nothing')"""),
        change("UPDATE outcomes SET outcome = 5 WHERE number = 1"),
        change("UPDATE outcomes SET url = 'http://other.test/'"),
        change("DELETE FROM outcomes WHERE number = 0"),
    ],
)
async def test_damaged_outcomes_are_fetched_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async with open_raw_server(ROUTES) as server:
        whole = await crawl(server, state=tmp_path / "state")
        damage(tmp_path / "state")
        again = await crawl(server, state=tmp_path / "state")
    assert [p.url for p in again.pages] == [p.url for p in whole.pages]


@pytest.mark.parametrize(
    "damage",
    [
        change("INSERT INTO pauses VALUES ('a.test', 'soon')"),
        change("UPDATE crawls SET started = 'once'"),
        change("ALTER TABLE crawls DROP COLUMN policy"),
    ],
)
async def test_damage_that_a_crawl_cannot_work_around_is_one_typed_error(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async with open_raw_server(ROUTES) as server:
        await crawl(server, state=tmp_path / "state")
        damage(tmp_path / "state")
        with pytest.raises(InvalidPolicyError) as caught:
            await crawl(server, state=tmp_path / "state")
    assert caught.value.field == "state"


@pytest.mark.parametrize("state", [5, "\0", b"x\0", ["state"]])
async def test_path_of_a_state_that_is_none_is_refused(state: Any) -> None:
    with pytest.raises(StateError):
        await forage.crawl("http://127.0.0.1:1/", state=state)


class RaisingStore(MemorySnapshotStore):
    """A store as a user may write it, which lets its own errors out."""

    async def put(self, snapshot: Snapshot) -> None:
        raise OSError(28, "No space left on device", "/secret/path")

    async def latest(self, source_id: str) -> Snapshot | None:
        raise RuntimeError("connection pool is closed")


async def test_store_that_raises_its_own_errors_costs_warnings_not_the_crawl() -> None:
    async with open_raw_server(ROUTES) as server:
        manifest = await crawl(server, store=RaisingStore())
    assert len(manifest.pages) == 3
    assert not any(p.stored for p in manifest.pages)
    assert "/secret" not in manifest.to_json()


async def test_all_urls_of_a_redirect_chain_count_as_seen() -> None:
    def moved(location: str) -> Answer:
        return page(b"", status="302 Found", headers=[("Location", location)])

    routes = {
        "/": [page(b'<a href="/a">x</a><a href="/b">x</a><a href="/c">x</a>', headers=HTML)],
        "/a": [moved("/b")],
        "/b": [moved("/c")],
        "/c": [page(b"c", headers=HTML)],
    }
    async with open_raw_server(routes) as server:
        manifest = await crawl(server)
        targets = [r.target for r in server.requests if r.target != "/robots.txt"]
    assert targets == ["/", "/a", "/b", "/c"]
    assert [p.url.removeprefix(server.origin) for p in manifest.pages] == ["/", "/c"]
    assert [s.reason.value for s in manifest.skips] == ["duplicate", "duplicate"]


async def test_long_base_and_short_links_do_not_fill_the_memory() -> None:
    links = "".join(f'<a href="{n}">x</a>' for n in range(20_000))
    body = f'<base href="/{"p" * 7000}/">{links}'.encode()
    async with open_raw_server({"/": [page(body, headers=HTML)]}) as server:
        manifest = await crawl(server)
    assert "too-many-links" in manifest.pages[0].warnings
    assert len(manifest.to_json()) < 10_000_000
