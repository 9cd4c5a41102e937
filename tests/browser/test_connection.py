"""A live connection: commands in the order in which they were posted, a deadline for each call, and everybody woken when it is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from forage.browser.connection import CdpConnection
from forage.browser.errors import CommandRefusedError, NoAnswerError, PageGoneError
from forage.browser.oversized import Oversized
from forage.errors import BrowserLostError
from tests.support.stepping import cancel_at_every_step


class Line:
    """A transport in memory: ``sent`` is what was written, `say` what the browser writes, `cut` its end."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False
        self.blocked = False
        self._say, self._hear = trio.open_memory_channel[str | Oversized](100)

    async def send(self, texts: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        if self.blocked:
            await trio.sleep_forever()
        if self.closed:
            raise BrowserLostError
        self.sent += [json.loads(text) for text in texts]

    async def read(self, take: Callable[[str | Oversized], None]) -> None:
        async for message in self._hear:
            take(message)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True

    def say(self, **message: Any) -> None:
        self._say.send_nowait(json.dumps(message))

    def say_oversized(self, told: Oversized) -> None:
        self._say.send_nowait(told)

    def cut(self) -> None:
        self.closed = True
        self._say.close()


@asynccontextmanager
async def open_line(**options: Any) -> AsyncIterator[tuple[Line, CdpConnection]]:
    line = Line()
    connection = CdpConnection(line, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.converse)
        yield line, connection
        nursery.cancel_scope.cancel()


async def test_an_answer_is_the_result_of_its_call(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection), trio.open_nursery() as nursery:

        async def browser() -> None:
            await trio.testing.wait_all_tasks_blocked()
            assert line.sent == [{"id": 1, "method": "A.a", "params": {"x": 1}, "sessionId": "S"}]
            line.say(id=1, result={"y": 2})

        nursery.start_soon(browser)
        assert await connection.call("A.a", {"x": 1}, "S") == {"y": 2}


async def test_commands_are_written_in_the_order_in_which_they_were_posted(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        for number in range(200):
            connection.post(f"A.{number}")
        await trio.testing.wait_all_tasks_blocked()
        assert [message["method"] for message in line.sent] == [f"A.{number}" for number in range(200)]


async def test_a_handler_may_post_from_within_the_reader(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):

        def reply(method: str, params: Any, session: str | None) -> None:
            connection.post("B.reply", params, session)

        connection.route("S", reply)
        line.say(method="A.event", params={"n": 1}, sessionId="S")
        await trio.testing.wait_all_tasks_blocked()
        assert line.sent == [{"id": 1, "method": "B.reply", "params": {"n": 1}, "sessionId": "S"}]


async def test_a_call_without_answer_ends_at_its_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line(seconds=3.0) as (_, connection):
        began = trio.current_time()
        with pytest.raises(NoAnswerError, match=r"A\.a"):
            await connection.call("A.a")
        assert trio.current_time() - began == pytest.approx(3.0)
        with pytest.raises(NoAnswerError):
            await connection.call("A.a", seconds=0.5)
        assert trio.current_time() - began == pytest.approx(3.5)


async def test_a_refusal_is_an_error_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        call = connection.post("A.a")
        line.say(id=call.number, error={"code": -32601, "message": "wasn't found"})
        with pytest.raises(CommandRefusedError, match="wasn't found"):
            await connection.answer(call)


async def test_the_loss_of_the_browser_wakes_every_waiter(autojump_clock: trio.testing.MockClock) -> None:
    ends: list[BrowserLostError] = []
    async with open_line() as (line, connection):
        connection.on_end = ends.append
        lost = []

        async def wait(session: str | None) -> None:
            with pytest.raises(BrowserLostError):
                await connection.call("A.a", None, session, seconds=1e9)
            lost.append(session)

        async with trio.open_nursery() as nursery:
            for session in (None, "S", "T"):
                nursery.start_soon(wait, session)
            await trio.testing.wait_all_tasks_blocked()
            line.cut()
        assert len(lost) == 3
        assert connection.ended is not None
        assert ends == [connection.ended]
        with pytest.raises(BrowserLostError):
            await connection.call("A.a")


async def test_a_message_that_cannot_be_read_is_the_end(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        line._say.send_nowait("{")
        with pytest.raises(BrowserLostError):
            await connection.call("A.a")


async def test_a_message_above_the_limit_ends_its_call_and_no_other(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        large, other = connection.post("DOM.getOuterHTML", None, "S"), connection.post("A.a")
        line.say_oversized(Oversized(size=70_000_000, number=large.number, session="S"))
        line.say(id=other.number, result={})
        with pytest.raises(NoAnswerError, match="70000000"):
            await connection.answer(large)
        assert await connection.answer(other) == {}


async def test_a_session_that_ends_wakes_its_waiters_only(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        connection.route("S", lambda *_: None)
        here, there = connection.post("A.a", None, "S"), connection.post("A.a", None, "T")
        line.say(method="Inspector.targetCrashed", params={}, sessionId="S")
        with pytest.raises(PageGoneError):
            await connection.answer(here)
        line.say(id=there.number, result={})
        assert await connection.answer(there) == {}


async def test_a_cancelled_call_leaves_nothing_and_its_late_answer_is_handed_over(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        late: list[Any] = []
        with trio.move_on_after(1):
            await connection.call("Target.createBrowserContext", if_late=late.append)
        with trio.move_on_after(1):
            await connection.call("A.a")
        line.say(id=1, result={"browserContextId": "C"})
        line.say(id=2, result={})
        await trio.testing.wait_all_tasks_blocked()
        assert late == [{"browserContextId": "C"}]
        assert connection._core.waiting == 0


async def test_a_browser_that_takes_no_commands_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, connection):
        line.blocked = True
        for _ in range(20_002):
            call = connection.post("A.a")
        with pytest.raises(BrowserLostError, match="does not take commands"):
            await connection.answer(call)


async def test_the_transport_is_closed_with_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with open_line() as (line, _):
        assert not line.closed
    assert line.closed


async def test_cancelled_at_every_step_it_leaves_no_task_and_no_waiter() -> None:
    async def operation() -> None:
        async with open_line() as (line, connection):
            call = connection.post("A.a")
            line.say(id=call.number, result={})
            await connection.answer(call)
            line.cut()
            with pytest.raises(BrowserLostError):
                await connection.call("B.b")

    assert await cancel_at_every_step(operation) > 5
