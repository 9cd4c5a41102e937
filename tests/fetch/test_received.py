"""Making snapshots of answers: what takes long takes nobody else's time."""

from __future__ import annotations

import random
import time

import pytest
import trio
import trio.testing

from forage.fetch.answer import Answer
from forage.fetch.received import received_snapshot
from forage.fetch.settings import utc_now
from forage.snapshots import Snapshot

_HARD = random.Random(0).randbytes(4096) * 256
"""A mebibyte in no charset: each decoder repairs most of it."""


def answer(body: bytes, content_type: str) -> Answer:
    field = (b"Content-Type", content_type.encode())
    return Answer(url="https://site.test/", status=200, headers=(field,), fields={b"content-type": (field[1],)}, body=body)


async def received(given: Answer, threads: trio.CapacityLimiter) -> Snapshot:
    found, _ = await received_snapshot(given, url=given.url, source_id="s", fetched_at=utc_now(), redirects=(), threads=threads)
    return found


@pytest.mark.parametrize("charset", ["gb18030", "gbk", "big5", "euc-jp", "euc-kr", "shift_jis", "iso-2022-jp"])
async def test_a_page_that_decodes_slowly_does_not_stall_the_others(charset: str) -> None:
    for _ in range(3):  # on a busy machine others may stall it
        longest, whole = await stalled_by(charset)
        if longest < max(0.2, whole / 2):
            return
    pytest.fail(f"nothing else ran for {longest:.2f} s of {whole:.2f} s, three times")


async def stalled_by(charset: str) -> tuple[float, float]:
    """How long nothing else ran while a page was decoded, and how long that took."""
    longest, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            await trio.sleep(0.005)

    turns = trio.CapacityLimiter(1)
    body = b"\x1b$B" + _HARD * 2 if charset == "iso-2022-jp" else _HARD * 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await trio.testing.wait_all_tasks_blocked()
        began = time.perf_counter()
        snapshot = await received(answer(body, f"text/plain; charset={charset}"), turns)
        whole = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    assert snapshot.raw_bytes == body
    return longest, whole


async def test_a_cancel_does_not_wait_for_a_page_that_decodes_slowly() -> None:
    threads = trio.CapacityLimiter(1)
    began = time.perf_counter()
    with trio.move_on_after(0.05) as scope:
        await received(answer(_HARD * 6, "text/plain; charset=gb18030"), threads)
    waited = time.perf_counter() - began
    assert scope.cancelled_caught
    assert threads.borrowed_tokens == 1  # the thread keeps its place until it ends by itself
    await threads.acquire()
    assert waited < (time.perf_counter() - began) / 2


@pytest.mark.parametrize(("size", "content_type"), [(16_384, "text/html; charset=gbk"), (1_048_576, "text/html"), (1_048_576, "image/png")])
async def test_what_is_quick_is_done_without_a_thread(size: int, content_type: str) -> None:
    none = trio.CapacityLimiter(1)
    await none.acquire()
    with trio.fail_after(10):
        assert (await received(answer(b"x" * size, content_type), none)).status == 200
