"""Groups of writes: order, company, cancellation, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
import trio
import trio.lowlevel
import trio.testing

from forage.snapshots.writers import WriteJob, WriterThreads


class Recorder:
    """Runs groups of strings, and remembers them and how many ran at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.groups: list[list[str]] = []
        self.now: set[str] = set()
        self.most = 0
        self.seconds = seconds
        self.lock = threading.Lock()
        self.met_itself = False

    def run(self, items: Sequence[str]) -> None:
        with self.lock:
            self.groups.append(list(items))
            keys = {item[0] for item in items}
            self.met_itself |= bool(keys & self.now)
            self.now |= keys
            self.most = max(self.most, len(self.now))
        time.sleep(self.seconds)
        with self.lock:
            self.now -= keys


def job(run: Callable[[Sequence[str]], None], item: str, *, alone: bool = False) -> WriteJob[str]:
    return WriteJob(item[0], item, run, alone)


async def submit_all(writers: WriterThreads[str], run: Callable[[Sequence[str]], None], items: Sequence[str]) -> None:
    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(writers.submit, job(run, item))
            await trio.testing.wait_all_tasks_blocked()


async def test_what_gathers_while_the_threads_are_busy_goes_together() -> None:
    recorder = Recorder(0.05)
    await submit_all(WriterThreads(threads=1, most=4), recorder.run, ["a1", "b1", "c1", "d1", "e1", "f1"])
    assert recorder.groups == [["a1"], ["b1", "c1", "d1", "e1"], ["f1"]]


async def test_writes_of_one_key_keep_their_order_and_never_meet() -> None:
    recorder = Recorder(0.002)
    items = [f"{key}{number}" for number in range(10) for key in "abc"]
    await submit_all(WriterThreads(threads=3, most=4), recorder.run, items)
    assert not recorder.met_itself
    for key in "abc":
        assert [item for group in recorder.groups for item in group if item[0] == key] == [f"{key}{n}" for n in range(10)]


async def test_those_that_want_to_be_alone_are() -> None:
    recorder = Recorder(0.02)
    writers: WriterThreads[str] = WriterThreads(threads=1, most=8)
    async with trio.open_nursery() as nursery:
        for item in ("a1", "b1", "c!", "d1", "e1"):
            nursery.start_soon(writers.submit, job(recorder.run, item, alone=item.endswith("!")))
            await trio.testing.wait_all_tasks_blocked()
    assert ["c!"] in recorder.groups
    assert sorted(item for group in recorder.groups for item in group) == ["a1", "b1", "c!", "d1", "e1"]


async def test_different_work_is_not_mixed() -> None:
    one, other = Recorder(0.02), Recorder(0.02)
    writers: WriterThreads[str] = WriterThreads(threads=1, most=8)
    async with trio.open_nursery() as nursery:
        for item, recorder in (("a1", one), ("b1", one), ("c1", other), ("d1", one), ("e1", other)):
            nursery.start_soon(writers.submit, job(recorder.run, item))
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(i for g in one.groups for i in g) == ["a1", "b1", "d1"]
    assert sorted(i for g in other.groups for i in g) == ["c1", "e1"]


async def test_no_more_threads_than_allowed() -> None:
    recorder = Recorder(0.01)
    await submit_all(WriterThreads(threads=2, most=1), recorder.run, [f"{chr(97 + n)}1" for n in range(12)])
    assert recorder.most == 2
    assert len(recorder.groups) == 12


async def test_an_error_reaches_everybody_of_the_group_and_nobody_else() -> None:
    def run(items: Sequence[str]) -> None:
        time.sleep(0.02)
        if "b1" in items:
            raise RuntimeError("failed")

    writers: WriterThreads[str] = WriterThreads(threads=1, most=3)
    failed: list[str] = []

    async def submit(item: str) -> None:
        try:
            await writers.submit(job(run, item))
        except RuntimeError:
            failed.append(item)

    async with trio.open_nursery() as nursery:
        for item in ("a1", "b1", "c1", "d1", "e1"):
            nursery.start_soon(submit, item)
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(failed) == ["b1", "c1", "d1"]
    await writers.submit(job(run, "f1"))


@pytest.mark.parametrize("waiting", [True, False])
async def test_a_cancelled_write_leaves_at_once_before_its_turn_and_waits_during_it(waiting: bool) -> None:
    recorder = Recorder(0.2)
    writers: WriterThreads[str] = WriterThreads(threads=1, most=1)
    async with trio.open_nursery() as nursery:
        if waiting:
            nursery.start_soon(writers.submit, job(recorder.run, "a1"))
            await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        with trio.move_on_after(0.05) as scope:
            await writers.submit(job(recorder.run, "b1"))
        took = trio.current_time() - began
        assert scope.cancelled_caught is waiting
        assert (took < 0.15) is waiting
    assert (["b1"] in recorder.groups) is not waiting


async def test_a_chance_that_a_cancelled_write_was_given_goes_to_the_next() -> None:
    recorder = Recorder(0.03)
    writers: WriterThreads[str] = WriterThreads(threads=1, most=1)
    token, written = trio.lowlevel.current_trio_token(), trio.Event()

    def run(items: Sequence[str]) -> None:
        recorder.run(items)
        token.run_sync_soon(written.set)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writers.submit, job(run, "a1"))
            scopes = [trio.CancelScope() for _ in range(5)]

            async def cancellable(scope: trio.CancelScope, item: str) -> None:
                with scope:
                    await writers.submit(job(recorder.run, item))

            for number, scope in enumerate(scopes):
                nursery.start_soon(cancellable, scope, f"{chr(98 + number)}1")
            nursery.start_soon(writers.submit, job(recorder.run, "z1"))
            await trio.testing.wait_all_tasks_blocked()
            await written.wait()
            for scope in scopes:
                scope.cancel()
    assert ["z1"] in recorder.groups
