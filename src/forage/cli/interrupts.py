"""Work that a person may interrupt: it is cancelled, and what it kept until then stays."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TextIO, TypeVar

import trio

from forage.errors import ForageError

__all__ = ["INTERRUPTED", "interruptible"]

INTERRUPTED = 11
"""The exit code."""

T = TypeVar("T")


async def interruptible(work: Callable[[], Awaitable[T]], err: TextIO, text: str) -> T | None:
    """What ``work`` gives, or None when an interrupt came first; then ``text`` is told."""
    done: list[T] = []
    failed: list[ForageError] = []

    async def until_done() -> None:
        try:
            done.append(await work())
        except ForageError as exc:  # kept, because the nursery would wrap it in a group
            failed.append(exc)
        nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_done)
            async for _ in signals:
                print(text, file=err)
                nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return done[0] if done else None
