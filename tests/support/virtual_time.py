"""Runs a test's coroutine in a trio run of its own whose clock jumps over every wait.

For code that may only wait for trio's clock and for memory: with real sockets the clock would jump over their answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
import trio.testing

__all__ = ["in_virtual_time"]

T = TypeVar("T")


async def in_virtual_time(operation: Callable[[], Awaitable[T]]) -> T:
    """The value of ``operation``, run in another thread under an autojump clock that starts at 0."""

    def run() -> T:
        return trio.run(operation, clock=trio.testing.MockClock(autojump_threshold=0))

    return await trio.to_thread.run_sync(run)
