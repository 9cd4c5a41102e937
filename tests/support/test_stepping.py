"""The cancellation check itself: it reaches every step, and it sees what stays behind."""

from __future__ import annotations

import os

import pytest
import trio

from tests.support.stepping import cancel_at_every_step


async def test_each_step_of_an_operation_is_reached() -> None:
    reached: list[int] = []

    async def operation() -> None:
        for step in range(3):
            await trio.lowlevel.checkpoint()
            reached.append(step)

    assert await cancel_at_every_step(operation) >= 3
    assert {0, 1, 2} <= set(reached)


async def test_descriptor_that_stays_open_is_seen() -> None:
    held: list[int] = []

    async def operation() -> None:
        descriptor = os.open("/dev/null", os.O_RDONLY)
        held.append(descriptor)
        await trio.lowlevel.checkpoint()  # a cancellation here leaves it open
        os.close(held.pop())

    with pytest.raises(AssertionError, match="descriptor stays open"):
        await cancel_at_every_step(operation)
    for descriptor in held:
        os.close(descriptor)
