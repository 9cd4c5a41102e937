"""A live connection to a browser: the protocol state over a transport, one task that reads and one that writes.

Owns the order of commands (they are written in the order in which they were posted, whoever posted them), the deadline of each call, and
the wake-up of everybody when the transport is gone. Posting does not wait, so that a handler of events may post; a call that is cancelled
never leaves half a message behind, because the writer writes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from forage.browser.cdp import Call, CdpCore, EventHandler, JsonObject
from forage.browser.errors import NoAnswerError
from forage.browser.oversized import Oversized
from forage.browser.transport import Message, Transport
from forage.errors import BrowserLostError

__all__ = ["CdpConnection"]

_MOST_UNSENT: Final = 20_000
_MOST_AT_ONCE: Final = 100


class CdpConnection:
    """Commands and events over one transport. `converse` must be running in a task for as long as it is used.

    ``seconds``: how long an answer may take where a caller does not say.
    """

    def __init__(self, transport: Transport, *, seconds: float = 10.0) -> None:
        self._transport = transport
        self._seconds = seconds
        self._core = CdpCore()
        self._unsent: deque[str] = deque()
        self._something_to_send = trio.Event()
        self._running = trio.CancelScope()
        self.on_end: Callable[[BrowserLostError], None] | None = None

    @property
    def ended(self) -> BrowserLostError | None:
        """Why nothing can be said any more; None while it can."""
        return self._core.ended

    async def converse(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read and write until the transport ends or this is cancelled; then every call is over."""
        error = BrowserLostError("the connection to the browser was closed")
        try:
            with self._running:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    task_status.started()
                    error = await self._read()
                    self._running.cancel()
        finally:
            self._end(error)
            with trio.CancelScope(shield=True):
                await self._transport.aclose()

    def _end(self, error: BrowserLostError) -> None:
        self._running.cancel()
        if self._core.ended is None:
            self._core.end(error)
            if self.on_end is not None:
                self.on_end(error)

    async def _read(self) -> BrowserLostError:
        try:
            await self._transport.read(self._take)
        except BrowserLostError as exc:
            return exc
        return BrowserLostError()

    def _take(self, message: Message) -> None:
        if isinstance(message, Oversized):
            self._core.drop_oversized(message.number, message.session, message.size)
        else:
            self._core.receive(message)

    async def _write(self) -> None:
        """Everything that was posted, in order."""
        try:
            while True:
                while unsent := self._unsent:
                    await self._transport.send([unsent.popleft() for _ in range(min(len(unsent), _MOST_AT_ONCE))])
                self._something_to_send = trio.Event()
                await self._something_to_send.wait()
        except BrowserLostError:
            self._running.cancel()

    # events

    def route(self, session: str | None, handler: EventHandler) -> None:
        """Events of ``session`` (None: of the browser) go to ``handler``, which runs in the reader: it neither waits nor raises."""
        self._core.route(session, handler)

    def unroute(self, session: str) -> None:
        """Forget a session; calls on it that are still open end."""
        self._core.unroute(session)

    # commands

    def post(self, method: str, params: JsonObject | None = None, session: str | None = None) -> Call:
        """Put a command in line. Its answer may be awaited with `answer`, or left to itself."""
        call, text = self._core.begin(method, params, session)
        if text is not None:
            if len(self._unsent) >= _MOST_UNSENT:
                # Only pages make that many: a browser that takes none of it is as good as gone.
                self._end(BrowserLostError("the browser does not take commands any more"))
            self._unsent.append(text)
            self._something_to_send.set()
        return call

    async def answer(self, call: Call, *, seconds: float | None = None, if_late: Callable[[JsonObject], None] | None = None) -> JsonObject:
        """The result of a posted command. ``if_late`` gets a result that comes when this was cancelled or has given up.

        Raises CommandRefusedError, NoAnswerError after ``seconds``, PageGoneError and BrowserLostError.
        """
        seconds = self._seconds if seconds is None else seconds
        if not call.settled:
            event = trio.Event()
            call.on_settled = lambda _: event.set()
            try:
                with trio.move_on_after(seconds):
                    await event.wait()
            finally:
                if not call.settled:
                    self._leave(call, if_late)
        else:
            await trio.lowlevel.checkpoint()
        if call.error is not None:
            raise call.error
        if call.result is None:
            raise NoAnswerError(call.method, f"not within {seconds:g} s")
        return call.result

    def _leave(self, call: Call, if_late: Callable[[JsonObject], None] | None) -> None:
        call.on_settled = None
        if if_late is not None:
            call.on_settled = lambda late: if_late(late.result) if late.result is not None else None
        self._core.forget(call)

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        session: str | None = None,
        *,
        seconds: float | None = None,
        if_late: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """Post a command and await its result; see `answer`."""
        return await self.answer(self.post(method, params, session), seconds=seconds, if_late=if_late)
