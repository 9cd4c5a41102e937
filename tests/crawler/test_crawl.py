"""Whole crawls over real sockets: what a caller of `forage.crawl` sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import forage
from forage.crawler import CrawlPolicy, Page, Seed, SkipReason
from forage.crawler.events import CrawlDone, HostPaused, PageCaptured
from forage.egress import DnsAnswers, EgressPolicy
from forage.errors import InvalidPolicyError
from forage.fetch import RenderedPage
from forage.snapshots import FilesystemSnapshotStore, MemorySnapshotStore, body_bytes
from tests.support.dialer import RecordingDialer
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page

HTML = [("Content-Type", "text/html; charset=utf-8")]


def html(*hrefs: str, text: str = "") -> Answer:
    return page((text + "".join(f'<a href="{href}">x</a>' for href in hrefs)).encode(), headers=HTML)


def policy_for(server: RawServer, **options: object) -> CrawlPolicy:
    egress = EgressPolicy(test_loopback_origins=(server.origin,))
    return CrawlPolicy(**{"delay": 0.0, "concurrency": 4, "egress": egress, **options})  # type: ignore[arg-type]  # a test's keyword options


def paths(pages: Sequence[Page], origin: str) -> list[str]:
    return [p.url.removeprefix(origin) for p in pages]


async def test_pages_are_captured_in_order_with_citations_that_resolve(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    async with open_raw_server({"/": [html("/a", "/b")], "/a": [html("/c", text="é")], "/b": [html()], "/c": [html()]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server), store=store)
        assert paths(manifest.pages, server.origin) == ["/", "/a", "/b", "/c"]
    for row in manifest.pages:
        resolution = await forage.resolve_source_ref(store, row.source_ref)
        assert resolution.snapshot is not None
        assert row.snapshot is not None
        assert body_bytes(resolution.snapshot) == body_bytes(row.snapshot)
        assert row.stored


async def test_replay_gives_the_same_rows_with_the_server_gone() -> None:
    store = MemorySnapshotStore()
    routes = {"/": [html("/a", "/old", "/gone")], "/a": [html("/b")], "/b": [html()], "/old": [_moved("/new")], "/new": [html("/a")]}
    async with open_raw_server(routes) as server:
        live = await forage.crawl(server.origin, policy_for(server), store=store)
        policy = policy_for(server, mode="replay")
    dialer = RecordingDialer()
    replayed = await forage.crawl(server.origin, policy, store=store, dialer=dialer)
    assert [(p.url, p.source_ref, p.body_hash) for p in replayed.pages] == [(p.url, p.source_ref, p.body_hash) for p in live.pages]
    assert [(f.url.removeprefix(server.origin), f.code) for f in replayed.failures] == [("/gone", "no-snapshot")]
    assert dialer.dialled == []


def _moved(location: str, status: str = "301 Moved") -> Answer:
    return page(b"", status=status, headers=[("Location", location)])


@pytest.mark.parametrize(
    ("seed", "rule"),
    [
        ("http://169.254.169.254/latest/meta-data/", "DENIED_ADDRESS"),
        ("http://[::1]:8080/", "INVALID_PORT"),
        ("http://localhost/", "DENIED_HOST"),
        ("http://0x7f.1/", "INVALID_HOST"),
        ("http://user:secret@site.test/", "CREDENTIALS"),
    ],
)
async def test_seed_that_the_guard_refuses_is_one_failed_row_and_no_connection(seed: str, rule: str) -> None:
    dialer = RecordingDialer()
    manifest = await forage.crawl(seed, CrawlPolicy(), dialer=dialer)
    (failure,) = manifest.failures
    assert (failure.code, failure.rule) == ("egress-denied", rule)
    assert manifest.counts.seen == 1
    assert dialer.dialled == []
    assert "secret" not in manifest.to_json()


async def test_apex_that_redirects_to_another_host_gives_the_row_and_the_target() -> None:
    async with open_raw_server({"/": [_moved("https://www.site.test/home?lang=en")]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server))
    (failure,) = manifest.failures
    assert (failure.code, failure.target) == ("off-scope", "https://www.site.test/home?lang=en")
    assert [(s.url, s.reason) for s in manifest.skips] == [("https://www.site.test/home?lang=en", SkipReason.OFF_SCOPE)]


async def test_robots_skip_names_the_line(tmp_path: Path) -> None:
    robots = page(b"User-agent: *\nDisallow: /closed\n", headers=[("Content-Type", "text/plain")])
    async with open_raw_server({"/robots.txt": [robots], "/": [html("/closed/x", "/open")], "/open": [html()]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server))
        assert "/closed/x" not in [r.target for r in server.requests]
    (skip,) = manifest.skips
    assert skip.reason is SkipReason.ROBOTS_DENIED
    assert "line 2" in (skip.detail or "")


async def test_requests_to_a_host_start_at_least_the_delay_apart() -> None:
    async with open_raw_server({"/": [html("/a", "/b", "/c")], "/a": [html()], "/b": [html()], "/c": [html()]}) as server:
        await forage.crawl(server.origin, policy_for(server, delay=0.2, concurrency=16))
        starts = [r.at for r in server.requests]
    assert len(starts) == 5
    assert all(later - earlier >= 0.17 for earlier, later in pairwise(starts))


async def test_seed_headers_and_user_agent_reach_the_seed_origin() -> None:
    async with open_raw_server({"/": [html("/a")], "/a": [html()]}) as server:
        seed = Seed(url=server.origin, headers={"X-Token": "t"}, user_agent="kestrel/1")
        await forage.crawl(seed, policy_for(server))
        pages = [r for r in server.requests if r.target != "/robots.txt"]
    assert [r.header("x-token") for r in pages] == ["t", "t"]
    assert {r.header("user-agent") for r in server.requests} == {"kestrel/1"}


async def test_page_larger_than_the_limit_is_a_failed_row() -> None:
    async with open_raw_server({"/": [html("/big")], "/big": [page(b"x" * 5000, headers=HTML)]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server, max_response_bytes=1000))
    assert [(f.code) for f in manifest.failures] == ["response-too-large"]


async def test_bodies_are_dropped_when_asked() -> None:
    async with open_raw_server({"/": [html()]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server, keep_bodies=False))
    assert manifest.pages[0].snapshot is None


async def test_second_crawl_revalidates_and_keeps_the_citation(tmp_path: Path) -> None:
    first = page(b"<p>hello</p>", headers=[*HTML, ("ETag", '"v1"')])
    second = Answer(steps=(b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\n\r\n',), end="keep")
    store = FilesystemSnapshotStore(tmp_path)
    async with open_raw_server({"/": [first, second]}) as server:
        one = await forage.crawl(server.origin, policy_for(server), store=store)
        two = await forage.crawl(server.origin, policy_for(server), store=store)
    assert two.pages[0].not_modified
    assert two.pages[0].source_ref == one.pages[0].source_ref


async def test_stream_hands_out_pages_while_the_crawl_runs() -> None:
    slow = Answer(steps=(0.3, *html().steps), end="keep")
    async with open_raw_server({"/": [html("/slow")], "/slow": [slow]}) as server:
        begun = trio.current_time()
        async with forage.crawl_stream(server.origin, policy_for(server)) as stream:
            seen = [(event, trio.current_time() - begun) async for event in stream]
        (first, early), (second, late), (last, _) = seen
        assert isinstance(first, PageCaptured)
        assert isinstance(second, PageCaptured)
        assert isinstance(last, CrawlDone)
        assert early < 0.25 < 0.3 <= late
        assert stream.manifest is last.manifest


async def test_a_host_that_asks_for_a_pause_is_an_event() -> None:
    busy = Answer(steps=(b"HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",), end="keep")
    async with open_raw_server({"/": [html("/busy")], "/busy": [busy, html()]}) as server:
        stream_of_events = forage.crawl_stream(server.origin, policy_for(server))
        async with stream_of_events as stream:
            events = [event async for event in stream]
        manifest = stream.manifest
    (pause,) = [event for event in events if isinstance(event, HostPaused)]
    assert pause.host == server.host_header
    assert 0.5 < pause.seconds <= 1.0
    assert manifest is not None
    assert len(manifest.pages) == 2


class _BrokenDownError(BaseException):
    """What no crawl foresees, like an interrupt that lands in one of its tasks."""


class _BreakingResolver:
    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        raise _BrokenDownError


async def _drain(door: Callable[..., Any], start: object, ended: list[bool]) -> None:
    async with door(start, CrawlPolicy(delay=0.0), resolver=_BreakingResolver()) as told:
        async for _ in told:
            pass
        ended.append(True)


@pytest.mark.parametrize(("door", "start"), [(forage.crawl_stream, "http://a.test/"), (forage.crawl_many, ["http://a.test/"])])
async def test_a_crawl_that_breaks_down_never_looks_to_its_consumer_like_one_that_has_ended(
    door: Callable[..., Any], start: object
) -> None:
    ended: list[bool] = []
    with trio.fail_after(20), pytest.RaisesGroup(_BrokenDownError, allow_unwrapped=True, flatten_subgroups=True):
        await _drain(door, start, ended)
    assert not ended


async def test_stopping_a_stream_gives_a_whole_manifest() -> None:
    slow = Answer(steps=(30.0, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), end="close")
    async with open_raw_server({"/": [html("/slow", "/b")], "/slow": [slow], "/b": [html()]}) as server:
        async with forage.crawl_stream(server.origin, policy_for(server)) as stream:
            async for event in stream:
                if isinstance(event, PageCaptured):
                    stream.stop()
        assert stream.manifest is not None
        assert stream.manifest.counts.seen == 3
        assert {s.reason for s in stream.manifest.skips} == {SkipReason.INTERRUPTED}
        assert stream.manifest.truncated


async def test_sitemaps_are_read_kept_and_replayed() -> None:
    store = MemorySnapshotStore()
    async with open_raw_server(_site_with_sitemap) as server:
        live = await forage.crawl(server.origin, policy_for(server, discovery="both"), store=store)
        assert [r.target for r in server.requests].count("/robots.txt") == 1
        origin, policy = server.origin, policy_for(server, discovery="both", mode="replay")
    assert paths(live.pages, origin) == ["/", "/listed", "/linked"]
    assert (live.sitemaps.documents_read, live.sitemaps.urls_discovered) == (1, 1)
    replayed = await forage.crawl(origin, policy, store=store, dialer=RecordingDialer())
    assert [p.source_ref for p in replayed.pages] == [p.source_ref for p in live.pages]
    assert replayed.sitemaps == live.sitemaps
    assert await store.latest(f"sitemap::{origin}/map.xml") is not None


class Browser:
    """Shows one link, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def render(self, url: str) -> RenderedPage:
        await trio.lowlevel.checkpoint()
        self.asked.append(url)
        return _Shown()


@attrs.frozen
class _Shown:
    html: str = '<a href="/rendered">x</a>'
    warnings: tuple[str, ...] = ()
    left_for: tuple[str, ...] = ()


async def test_render_of_a_seed_is_about_its_own_page() -> None:
    browser = Browser()
    async with open_raw_server({"/": [html("/plain")], "/rendered": [html()]}) as server:
        seed = Seed(url=server.origin, render="always")
        manifest = await forage.crawl(seed, policy_for(server), renderer=browser)
        assert browser.asked == [f"{server.origin}/"]
    assert [(p.url.removeprefix(server.origin), p.rendered) for p in manifest.pages] == [("/", True), ("/rendered", False)]


async def test_sitemaps_alone_decide_what_a_sitemap_crawl_visits() -> None:
    async with open_raw_server(_site_with_sitemap) as server:
        manifest = await forage.crawl(server.origin, policy_for(server, discovery="sitemap"))
    assert paths(manifest.pages, server.origin) == ["/", "/listed"]
    assert [(s.url, s.reason) for s in manifest.skips] == [("https://other.test/x", SkipReason.OFF_SCOPE)]


def _site_with_sitemap(request: RawRequest) -> Answer:
    origin = f"http://{request.header('host')}"
    match request.target:
        case "/robots.txt":
            return page(f"Sitemap: {origin}/map.xml\n".encode(), headers=[("Content-Type", "text/plain")])
        case "/map.xml":
            listed = f"<urlset><url><loc>{origin}/listed</loc></url><url><loc>https://other.test/x</loc></url></urlset>"
            return page(listed.encode(), headers=[("Content-Type", "application/xml")])
        case "/":
            return html("/linked")
        case _:
            return html()


@pytest.mark.parametrize("seed", ["nonsense", "ftp://site.test/", 7, None])
async def test_wrong_seed_raises_one_typed_error(seed: object) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        await forage.crawl(seed)  # type: ignore[arg-type]  # the error is the point
    assert caught.value.field in ("seed", "seed.url")


async def test_replay_without_a_store_says_so() -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        await forage.crawl("https://site.test/", CrawlPolicy(mode="replay"))
    assert caught.value.field == "store"


@pytest.mark.parametrize("store", ["kept", Path("kept"), 7, {}])
async def test_store_that_is_none_is_refused_before_anything_is_asked(store: object) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        await forage.crawl("http://127.0.0.1:1/", store=store)  # type: ignore[arg-type]  # the error is the point
    assert caught.value.field == "store"


async def test_store_whose_path_is_a_file_costs_warnings_not_pages(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a folder")
    async with open_raw_server({"/": [html("/a")], "/a": [html()]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server), store=FilesystemSnapshotStore(path))
    assert [p.stored for p in manifest.pages] == [False, False]
    assert all(any(w.startswith("store:") for w in p.warnings) for p in manifest.pages)
    assert str(tmp_path) not in manifest.to_json()
    assert path.read_text() == "not a folder"


async def test_environment_proxies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9/")
    async with open_raw_server({"/": [html()]}) as server:
        manifest = await forage.crawl(server.origin, policy_for(server))
    assert len(manifest.pages) == 1
