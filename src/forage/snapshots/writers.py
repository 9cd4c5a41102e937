"""Writes leave the event loop in groups: a few threads, each taking what has gathered.

Owns the queue of one store and its rules: writes of one source keep their order and never meet in two threads; what a thread has
begun is waited for, also by a cancelled caller (the critical section of a write is one call in one thread); what no thread has begun yet is
withdrawn at once. There is no background task: a caller that finds a free thread leads, the others wait for it. Knows no file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import attrs
import trio

__all__ = ["WriteJob", "WriterThreads"]

T = TypeVar("T")


@attrs.define(eq=False)
class WriteJob(Generic[T]):
    """Something to be written. Jobs with one ``key`` run one after another, or together in one turn of a thread.

    ``run`` is called in a thread with the items of the jobs that are taken together, all of the same ``run``; ``alone``: with this
    one only. What it raises, each of them gets.
    """

    key: str
    item: T
    run: Callable[[Sequence[T]], None]
    alone: bool = False
    taken: bool = False
    error: BaseException | None = None
    finished: trio.Event = attrs.field(factory=trio.Event)
    chance: trio.Event = attrs.field(factory=trio.Event)


class _Queue(Generic[T]):
    """The state of one run of trio."""

    def __init__(self) -> None:
        self.waiting: deque[WriteJob[T]] = deque()
        self.busy: set[str] = set()
        self.threads = 0


class WriterThreads(Generic[T]):
    """At most ``threads`` groups at once, each of at most ``most`` jobs."""

    def __init__(self, *, threads: int, most: int) -> None:
        self._threads = threads
        self._most = most
        self._limiter = trio.CapacityLimiter(threads)
        # A store may be used by several runs of trio, one after another or in several threads: they share files, not events.
        self._queues: WeakKeyDictionary[trio.lowlevel.TrioToken, _Queue[T]] = WeakKeyDictionary()

    async def submit(self, job: WriteJob[T]) -> None:
        """Wait until the job has run. Raises what ``run`` raised. A cancelled caller leaves at once before the run, not during it."""
        await trio.lowlevel.checkpoint()
        queue = self._queues.setdefault(trio.lowlevel.current_trio_token(), _Queue())
        queue.waiting.append(job)
        try:
            while not job.taken:
                group = self._take(queue)
                if group:
                    await self._lead(queue, group)
                else:
                    job.chance = trio.Event()
                    await job.chance.wait()
        finally:
            if not job.taken:
                queue.waiting.remove(job)
                self._give_chance(queue)  # it may have been this job's
        # Another caller's thread may be writing it. Leaving now would say "cancelled" of what is about to be durable. The wait ends
        # with that thread, as the leader's own does, so it has no deadline.
        with trio.CancelScope(shield=True):
            await job.finished.wait()
        if job.error is not None:
            raise job.error

    def _take(self, queue: _Queue[T]) -> list[WriteJob[T]]:
        """The next group, in order of arrival; empty when there is no free thread or nothing that may run."""
        if queue.threads >= self._threads:
            return []
        group: list[WriteJob[T]] = []
        passed: set[str] = set()
        for job in queue.waiting:
            if len(group) >= self._most:
                break
            if job.key in queue.busy or job.key in passed or (group and not _together(group[0], job)):
                passed.add(job.key)
            else:
                group.append(job)
        for job in group:
            job.taken = True
            job.chance.set()
            queue.waiting.remove(job)
            queue.busy.add(job.key)
        queue.threads += bool(group)
        return group

    async def _lead(self, queue: _Queue[T], group: list[WriteJob[T]]) -> None:
        self._give_chance(queue)  # there may be more work, and another free thread
        error: BaseException | None = None
        try:
            with trio.CancelScope(shield=True):  # the others of the group depend on it; it ends with the thread
                items = [job.item for job in group]
                await trio.to_thread.run_sync(group[0].run, items, abandon_on_cancel=False, limiter=self._limiter)
        except Exception as exc:  # noqa: BLE001 - raised by each caller of the group
            error = exc
        finally:
            queue.threads -= 1
            for job in group:
                queue.busy.discard(job.key)
                job.error = error
                job.finished.set()
            self._give_chance(queue)

    def _give_chance(self, queue: _Queue[T]) -> None:
        if queue.threads < self._threads:
            for job in queue.waiting:
                if job.key not in queue.busy:
                    job.chance.set()
                    return


def _together(first: WriteJob[T], job: WriteJob[T]) -> bool:
    return not (first.alone or job.alone) and first.run == job.run
