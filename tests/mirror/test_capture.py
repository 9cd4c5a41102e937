"""The bulk pass: one flight a key, what is asked again, what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from forage.mirror.archive import Archive, ArchiveReply, ArchiveRequestError, RequestCapError
from forage.mirror.cache import CacheRoot, CacheRootError, Entry, utc_text
from forage.mirror.capture import Capturer, NotACaptureUrlError, RetryTerminal
from forage.mirror.keys import body_path, key_hash

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT = "https://web.archive.org/web/2012"
PAGE = ArchiveReply(
    status=200, content_type="text/html", body=b'<img src="/web/2012im_/http://x.org/a.png"><img src="/web/2012im_/http://x.org/b.png">'
)
ASSET = ArchiveReply(status=200, content_type="image/png", body=b"PNG")

Fetch = Callable[[str], Awaitable[ArchiveReply]]


def capturer(
    root: Path, fetch: Fetch, *, retry: RetryTerminal | None = None, together: int = 4, max_requests: int | None = None
) -> Capturer:
    archive = Archive(fetch, delay=0.0, attempts=1, together=together, max_requests=max_requests, random=lambda: 0.0, utc_now=lambda: NOW)
    return Capturer(CacheRoot(root), archive, utc_now=lambda: NOW, retry_terminal=retry)


def answering(asked: list[str], **special: ArchiveReply) -> Fetch:
    async def fetch(url: str) -> ArchiveReply:
        asked.append(url)
        await trio.sleep(0.01)
        name = url.rpartition("/")[2]
        return special.get(name.partition(".")[0] or "page", PAGE if not name else ASSET)

    return fetch


async def test_two_documents_that_share_an_asset_fetch_it_once(tmp_path: Path) -> None:
    asked: list[str] = []
    capture = capturer(tmp_path, answering(asked))
    summaries = []

    async def one(host: str) -> None:
        summaries.append(await capture(f"{ROOT}/http://{host}/"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "x.org")
        nursery.start_soon(one, "y.org")
    assert sorted(asked) == sorted(set(asked))
    assert len(asked) == 4
    assert sum(summary.fetched for summary in summaries) == 4
    assert all(len(summary.entries) == 3 and not summary.failures for summary in summaries)


async def test_a_child_that_arrived_since_the_pass_looked_is_not_fetched_again(tmp_path: Path) -> None:
    asked: list[str] = []
    slow = trio.Event()

    async def fetch(url: str) -> ArchiveReply:
        asked.append(url)
        if url.endswith("x.org/a.png"):
            await slow.wait()
        return PAGE if url.endswith("/") else ASSET

    capture = capturer(tmp_path, fetch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(capture, f"{ROOT}/http://x.org/")
        while len(asked) < 2:  # noqa: ASYNC110 - until the pass is in the middle of its children
            await trio.sleep(0.001)
        await capture(f"{ROOT}/http://x.org/b.png")
        slow.set()
    assert len(asked) == len(set(asked)) == 3


async def test_a_failure_is_shared_by_everybody_who_waited(tmp_path: Path) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> ArchiveReply:
        asked.append(url)
        await trio.sleep(0.05)
        raise ArchiveRequestError("reset")

    capture = capturer(tmp_path, fetch)
    errors = []

    async def one() -> None:
        try:
            await capture(f"{ROOT}/http://x.org/")
        except Exception as exc:
            errors.append(str(exc))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert errors == ["reset"] * 3
    assert len(asked) == 1


async def test_a_cancelled_flight_is_taken_over(tmp_path: Path) -> None:
    started: list[str] = []

    async def fetch(url: str) -> ArchiveReply:
        started.append(url)
        if len(started) == 1:
            await trio.sleep_forever()
        return ASSET

    capture = capturer(tmp_path, fetch)
    done = []

    async def second() -> None:
        done.append(await capture(f"{ROOT}/http://x.org/"))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.05):
            nursery.start_soon(trio.sleep, 0)
            async with trio.open_nursery() as first:
                first.start_soon(capture, f"{ROOT}/http://x.org/")
                await trio.sleep(0.01)
                nursery.start_soon(second)
    assert len(started) == 2
    assert done[0].fetched == 1


async def test_children_that_fail_are_asked_again_by_the_next_pass_only(tmp_path: Path) -> None:
    asked: list[str] = []
    capture = capturer(tmp_path, answering(asked, a=ArchiveReply(status=503)))
    summary = await capture(f"{ROOT}/http://x.org/")
    assert [failure.key for failure in summary.failures] == ["2012/http://x.org/a.png"]
    assert len(asked) == 3
    summary = await capturer(tmp_path, answering(asked))(f"{ROOT}/http://x.org/")
    assert (summary.fetched, summary.skipped, len(asked)) == (1, 2, 4)


async def test_a_key_without_separator_is_reported(tmp_path: Path) -> None:
    cache = CacheRoot(tmp_path)
    cache.commit(Entry(key="2012/http://x.org/", status="body", fetched_at=utc_text(NOW), requisites=("broken",)), b"x")
    summary = await capturer(tmp_path, answering([]))(f"{ROOT}/http://x.org/")
    assert [(failure.key, "malformed" in failure.error) for failure in summary.failures] == [("broken", True)]


@pytest.mark.parametrize(
    ("statuses", "age", "again"),
    [({"error"}, 0.0, True), ({"error"}, 3600.0, True), ({"error"}, 7200.0, False), ({"empty"}, 0.0, False), ({"body"}, 0.0, False)],
)
async def test_terminal_captures_are_asked_again_by_status_and_age(tmp_path: Path, statuses: set[str], age: float, again: bool) -> None:
    cache, key = CacheRoot(tmp_path), "2012/http://x.org/a.png"
    old = utc_text(NOW - timedelta(hours=1))
    cache.commit(Entry(key="2012/http://x.org/", status="body", content_type="text/html", fetched_at=old, requisites=(key,)), PAGE.body)
    cache.commit(Entry(key=key, status="error", fetched_at=old, flag="im_"))
    asked: list[str] = []
    await capturer(tmp_path, answering(asked), retry=RetryTerminal(statuses=frozenset(statuses), seconds=age))(f"{ROOT}/http://x.org/")
    found = cache.read_sidecar(key)
    assert found is not None
    assert found.status == ("body" if again else "error")
    assert len(asked) == again


async def test_a_bodiless_document_that_is_fetched_again_keeps_its_recorded_children(tmp_path: Path) -> None:
    cache, key = CacheRoot(tmp_path), "2012/http://x.org/"
    children = ({"key": "2012/http://x.org/c", "flag": None, "via": "manual"},)
    cache.commit(Entry(key=key, status="error", fetched_at="long ago", dynamic=children))
    await capturer(tmp_path, answering([]), retry=RetryTerminal(statuses=frozenset(["error"])))(f"{ROOT}/http://x.org/")
    found = cache.read_sidecar(key)
    assert found is not None
    assert (found.status, found.dynamic_rows) == ("body", children)


async def test_a_corrupt_body_is_fetched_again_and_a_refusal_leaves_it(tmp_path: Path) -> None:
    cache, key = CacheRoot(tmp_path), "2012/http://x.org/a.png"
    sidecar = cache.commit(Entry(key=key, status="body", content_type="image/png", fetched_at="then", flag="im_"), b"PNG")
    path = tmp_path / body_path(key_hash(key))
    path.write_bytes(b"rot")
    asked: list[str] = []
    with pytest.raises(Exception, match="HTTP 404"):
        await capturer(tmp_path, answering(asked, a=ArchiveReply(status=404))).refetch(sidecar)
    assert path.read_bytes() == b"rot"
    assert (await capturer(tmp_path, answering(asked)).refetch(sidecar)).content_hash == sidecar.content_hash
    assert path.read_bytes() == b"PNG"
    assert asked == [f"{ROOT}im_/http://x.org/a.png"] * 2


async def test_the_cap_ends_the_pass(tmp_path: Path) -> None:
    asked: list[str] = []
    with pytest.raises(RequestCapError):
        await capturer(tmp_path, answering(asked), max_requests=2)(f"{ROOT}/http://x.org/")
    assert len(asked) == 2
    assert CacheRoot(tmp_path).has_sidecar("2012/http://x.org/a.png")


async def test_a_full_disk_ends_the_pass(tmp_path: Path) -> None:
    (tmp_path / "cap").write_bytes(b"in the way")
    with pytest.raises(CacheRootError):
        await capturer(tmp_path, answering([]))(f"{ROOT}/http://x.org/")


async def test_only_replay_urls_are_captured(tmp_path: Path) -> None:
    with pytest.raises(NotACaptureUrlError):
        await capturer(tmp_path, answering([]))("https://example.org/")
    assert not list(tmp_path.iterdir())


async def test_a_redirected_capture_names_where_it_came_from(tmp_path: Path) -> None:
    async def fetch(url: str) -> ArchiveReply:
        return ArchiveReply(status=302, location="/web/2011/http://www.x.org/") if "/2012/" in url else ASSET

    await capturer(tmp_path, fetch)(f"{ROOT}/http://x.org/")
    found = CacheRoot(tmp_path).read_sidecar("2012/http://x.org/")
    assert found is not None
    assert found.members["finalKey"] == "2011/http://www.x.org/"
