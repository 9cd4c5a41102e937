"""Cancels an operation at every step of the scheduler, and checks that nothing stays behind.

``cancel_at_every_step(operation)`` runs ``operation`` anew, cancelled before step 0, 1, 2, ... of any task, until a run ends by itself.
After each run the open file descriptors and the living tasks must be those of before; an unclosed socket is a warning, hence an error.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
import trio.testing

__all__ = ["cancel_at_every_step", "open_descriptors", "settle"]

_MOST_STEPS = 5_000


class _CancelAtStep(trio.abc.Instrument):
    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._left == 0:
            self._scope.cancel()
        self._left -= 1


def open_descriptors() -> set[str]:
    """The file descriptors of this process, as numbers with what they lead to."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


async def settle() -> None:
    """Let tasks that were not part of the operation (servers) finish what the cancellation set off."""
    for _ in range(5):
        await trio.testing.wait_all_tasks_blocked(0.001)


async def cancel_at_every_step(operation: Callable[[], Awaitable[object]], *, every: int = 1) -> int:
    """The number of steps at which ``operation`` was cancelled. ``every``: cancel at each n-th step only."""
    await operation()  # what is made once (threads, caches) is there before the first count
    await settle()
    gc.collect()
    gc.freeze()  # what lives now is not searched again after every step
    try:
        return await _cancel_at_each(operation, every)
    finally:
        gc.unfreeze()


async def _cancel_at_each(operation: Callable[[], Awaitable[object]], every: int) -> int:
    descriptors, tasks = open_descriptors(), trio.lowlevel.current_statistics().tasks_living
    for step in range(0, _MOST_STEPS, every):
        with trio.CancelScope() as scope:
            instrument = _CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await operation()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await settle()
        gc.collect()
        assert open_descriptors() == descriptors, f"a descriptor stays open after a cancellation at step {step}"
        assert trio.lowlevel.current_statistics().tasks_living == tasks, f"a task stays after a cancellation at step {step}"
        if not scope.cancelled_caught:
            return step
    raise AssertionError(f"the operation takes more than {_MOST_STEPS} steps")
