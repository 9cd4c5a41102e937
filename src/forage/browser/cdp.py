"""The Chrome DevTools Protocol as plain state: numbered calls, their answers, events routed by session (pure).

Owns which answer belongs to which call, which handler gets which event, and what becomes of calls whose page or browser is gone: every call
is settled exactly once, by an answer, an error, or being forgotten. Reading and writing messages is ``connection``'s business.

Whoever is on the other end is a program full of hostile pages: a message that cannot be read is an error of the connection, an event of an
unknown session is dropped, an answer nobody waits for too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from forage.browser.errors import CommandRefusedError, NoAnswerError, PageGoneError
from forage.errors import BrowserError, BrowserLostError

__all__ = ["Call", "CdpCore", "EventHandler", "JsonObject", "encode"]

JsonObject: TypeAlias = Mapping[str, Any]
EventHandler: TypeAlias = Callable[[str, JsonObject, "str | None"], None]
"""Called with method, parameters and session of an event. Must not wait, and must not raise."""

_NOTHING: Final[JsonObject] = {}


def encode(number: int, method: str, params: JsonObject | None, session: str | None) -> str:
    """One command as it goes to the browser. ASCII only, so that every transport counts characters and bytes alike."""
    message: dict[str, Any] = {"id": number, "method": method}
    if params:
        message["params"] = params
    if session is not None:
        message["sessionId"] = session
    return json.dumps(message, separators=(",", ":"))


class Call:
    """A command on its way. When it is settled, ``result`` or ``error`` is set and ``on_settled`` called, from within the reader."""

    __slots__ = ("error", "method", "number", "on_settled", "result", "session")

    def __init__(self, number: int, method: str, session: str | None) -> None:
        self.number = number
        self.method = method
        self.session = session
        self.result: JsonObject | None = None
        self.error: BrowserError | None = None
        self.on_settled: Callable[[Call], None] | None = None

    @property
    def settled(self) -> bool:
        return self.result is not None or self.error is not None

    def settle(self, result: JsonObject | None, error: BrowserError | None = None) -> None:
        """Once; what comes later is ignored."""
        if self.settled:
            return
        self.result, self.error = (_NOTHING if result is None and error is None else result), error
        if self.on_settled is not None:
            self.on_settled(self)


class CdpCore:
    """The state of one connection to a browser. Sessions are texts; None is the browser itself."""

    def __init__(self) -> None:
        self._last = 0
        self._calls: dict[int, Call] = {}
        self._routes: dict[str | None, EventHandler] = {}
        self._gone: dict[str, BrowserError] = {}
        self.ended: BrowserLostError | None = None

    @property
    def waiting(self) -> int:
        """Calls that are not settled."""
        return len(self._calls)

    # routes

    def route(self, session: str | None, handler: EventHandler) -> None:
        """Hand events of ``session`` to ``handler`` from now on."""
        self._routes[session] = handler

    def unroute(self, session: str) -> None:
        """Drop all that is known of a session. Calls on it that are still open end as if its page had closed."""
        self._routes.pop(session, None)
        self._settle_session(session, PageGoneError(crashed=False))
        self._gone.pop(session, None)

    # calls

    def begin(self, method: str, params: JsonObject | None = None, session: str | None = None) -> tuple[Call, str | None]:
        """A new call and the text to send; no text when it is settled already, as its session or the browser is gone."""
        self._last += 1
        call = Call(self._last, method, session)
        gone = self.ended or (None if session is None else self._gone.get(session))
        if gone is not None:
            call.settle(None, gone)
            return call, None
        self._calls[call.number] = call
        return call, encode(call.number, method, params, session)

    def forget(self, call: Call) -> None:
        """Nobody waits any more; a late answer is ignored unless ``on_settled`` is set, which then still gets it."""
        if call.on_settled is None:
            self._calls.pop(call.number, None)

    # messages

    def receive(self, text: str) -> None:
        """Take in one message: settle a call or hand on an event. Raises BrowserLostError for one that cannot be read."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise BrowserLostError("the browser sent something that is no message") from exc
        if not isinstance(message, dict):
            raise BrowserLostError("the browser sent something that is no message")
        number = message.get("id")
        if number is not None:
            self._answer(number, message)
            return
        method, params, session = message.get("method"), message.get("params", _NOTHING), message.get("sessionId")
        if isinstance(method, str) and isinstance(params, dict):
            self._event(method, params, session if isinstance(session, str) else None)

    def _answer(self, number: object, message: JsonObject) -> None:
        call = self._calls.pop(number, None) if isinstance(number, int) else None
        if call is None:
            return
        error, result = message.get("error"), message.get("result")
        if isinstance(error, dict):
            said, code = error.get("message"), error.get("code")
            call.settle(None, CommandRefusedError(call.method, code if isinstance(code, int) else 0, str(said)[:200]))
        else:
            call.settle(result if isinstance(result, dict) else _NOTHING)

    def _event(self, method: str, params: JsonObject, session: str | None) -> None:
        if method == "Inspector.targetCrashed" and session is not None:
            # A crashed page answers nothing more, nor is its session detached: whoever waits would wait for ever.
            self._end_session(session, crashed=True)
        handler = self._routes.get(session)
        if handler is not None:
            handler(method, params, session)
        if method == "Target.detachedFromTarget" and isinstance(ended := params.get("sessionId"), str):
            self._end_session(ended, crashed=False)

    def drop_oversized(self, number: int | None, session: str | None, size: int) -> None:
        """A message above the limit of the transport was skipped: its call ends without answer, its page is told."""
        call = None if number is None else self._calls.pop(number, None)
        if call is not None:
            call.settle(None, NoAnswerError(call.method, f"it is larger than the transport takes ({size} bytes)"))
        elif number is None and (handler := self._routes.get(session)) is not None:
            handler("Forage.oversized", {"size": size}, session)

    # ends

    def _end_session(self, session: str, *, crashed: bool) -> None:
        gone = PageGoneError(crashed=crashed)
        if session in self._routes:
            self._gone.setdefault(session, gone)
        self._settle_session(session, gone)

    def _settle_session(self, session: str, error: BrowserError) -> None:
        for call in [call for call in self._calls.values() if call.session == session]:
            del self._calls[call.number]
            call.settle(None, error)

    def end(self, error: BrowserLostError) -> None:
        """The transport is gone: every call ends, and so does every later one."""
        self.ended = self.ended or error
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.settle(None, self.ended)
