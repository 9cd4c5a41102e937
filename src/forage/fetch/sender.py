"""One request, politely: a turn of the host's clock, one deadline, the answer or a failure, and another attempt where that helps.

Owns the mapping of errors to kinds, retries, and what an answer means to the host's clock. It follows no redirect (``acquisition``
and ``robots_client`` do, each by its own rules) and keeps no snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import trio

from forage.egress import EgressSession, JudgedUrl, OpenExchange
from forage.errors import (
    EgressCode,
    EgressDeniedError,
    EgressError,
    EgressUnreachableError,
    FetchError,
    FetchErrorKind,
    ResponseTooLargeError,
)
from forage.fetch.answer import Answer, without_query
from forage.fetch.politeness import HostClock, HostClocks, WaitReason, WaitTooLongError
from forage.fetch.result import FetchFailure
from forage.fetch.retry import backoff_seconds, may_retry, read_retry_after
from forage.fetch.settings import FetchSettings

__all__ = ["Sender", "Wanted", "denial"]

_MOST_GROUPS = 100_000

_DENIAL_KINDS = {
    EgressCode.INVALID_URL: FetchErrorKind.INVALID_URL,
    EgressCode.INVALID_SCHEME: FetchErrorKind.INVALID_URL,
    EgressCode.REDIRECT_INVALID: FetchErrorKind.INVALID_URL,
    EgressCode.REDIRECT_LIMIT: FetchErrorKind.TOO_MANY_REDIRECTS,
    EgressCode.REDIRECT_LOOP: FetchErrorKind.TOO_MANY_REDIRECTS,
    EgressCode.INVALID_HEADER: FetchErrorKind.INVALID_CONFIG,
}


def denial(exc: EgressDeniedError) -> FetchFailure:
    """The guard's no as a failure of a fetch: what is wrong with the URL itself is ``invalid-url``, the rest ``egress-denied``."""
    kind = _DENIAL_KINDS.get(exc.code, FetchErrorKind.EGRESS_DENIED)
    return FetchFailure(kind=kind, message=str(exc), reason=exc.code.value, target=exc.target)


@attrs.frozen(kw_only=True)
class Wanted:
    """Which bodies are read: those of statuses for which ``of`` is true, at most ``limit`` bytes (None: the session's own ceiling).

    With ``cut`` a longer body is no failure: reading stops there.
    """

    of: Callable[[int], bool]
    limit: int | None = None
    cut: int | None = None


class Sender:
    """Sends the requests of one fetcher over its session, each on the clock of its host."""

    def __init__(self, session: EgressSession, clocks: HostClocks, settings: FetchSettings) -> None:
        self._session = session
        self._clocks = clocks
        self._settings = settings
        self._connected: dict[str, str] = {}  # by host: where it was last connected; grouped by address only

    async def clock(self, target: JudgedUrl) -> HostClock:
        """The clock of a target's host: http and https share it on their default ports, another port has its own.

        Grouped by address, hosts share one whose address in force is the same: the one that was last connected, or the first one as long
        as none was. A host that was last connected elsewhere than it now says has a clock of its own: what its name says is its owner's
        to choose, and must neither slow the hosts of another address down nor set their delays.
        """
        if self._settings.group_by == "host":
            return self._clocks.of(target.host_header)
        return self._clocks.of(await self._group(target))

    async def _group(self, target: JudgedUrl) -> str:
        try:
            addresses = {address.address for address in await self._session.judge(target)}
        except EgressError:  # the request itself will meet it again, and say so
            return target.host_header
        connected = self._connected.get(target.host_header)
        if connected is None:
            return min(addresses)
        return connected if connected in addresses else target.host_header

    def _answered(self, clock: HostClock, target: JudgedUrl, answer: Answer) -> tuple[HostClock, ...]:
        """The clocks that an answer is for: that of the address that gave it, and the host's own when the request went by another one.

        A request that went by the clock of an address and came from another leaves nothing behind on that clock.
        """
        connected = "" if answer.facts is None else answer.facts.connected
        if self._settings.group_by == "host" or not connected:
            return (clock,)
        if len(self._connected) >= _MOST_GROUPS:
            self._connected.clear()
        self._connected[target.host_header] = connected
        if clock.host == connected:
            return (clock,)
        own = self._clocks.of(target.host_header)
        if clock is not own:
            own.set_crawl_delay(target.origin, clock.take_crawl_delay(target.origin))
        return (self._clocks.of(connected), own)

    async def send(
        self, target: JudgedUrl, headers: Sequence[tuple[str, str]], wanted: Wanted, *, page: bool, warnings: list[str]
    ) -> tuple[Answer, int]:
        """Ask until there is an answer that another attempt would not improve; also how many requests went out.

        One entry of ``warnings`` for each retry. Never raises for operational trouble.
        """
        sent = 0
        for attempt in range(self._settings.retries + 1):
            clock = await self.clock(target)
            answer = await self._attempt(clock, target, headers, wanted, page=page)
            sent += answer.sent
            wait, answer = self._judge(self._answered(clock, target, answer), answer, attempt)
            if wait is None or attempt == self._settings.retries:
                break
            why = answer.failure.kind.value if answer.failure is not None else f"HTTP {answer.status}"
            warnings.append(f"retry: {attempt + 1} of {self._settings.retries} for {without_query(target.url)} after {why}")
            await self._sleep(target, wait)
        return answer, sent

    async def _sleep(self, target: JudgedUrl, seconds: float) -> None:
        """A wait of this fetch alone; a paused host holds everybody back at its clock instead."""
        until = trio.current_time() + seconds
        if seconds > 0 and self._settings.on_wait is not None:
            self._settings.on_wait(target.host_header, until, WaitReason.RETRY)
        await trio.sleep_until(until)

    def _judge(self, clocks: Sequence[HostClock], answer: Answer, attempt: int) -> tuple[float | None, Answer]:
        """Seconds to wait before another attempt, None when none would help; and what the host's clocks are told."""
        pressed = answer.status in (429, 503)
        if answer.status is not None:
            for clock in clocks:
                if answer.waited is not None:
                    clock.observe(answer.waited)
                clock.refusals = clock.refusals + 1 if pressed else 0
        kind = answer.failure.kind if answer.failure is not None else FetchErrorKind.HTTP_ERROR
        if not may_retry(kind, answer.status):
            return None, answer
        asked = read_retry_after(answer.header("retry-after"), date=answer.header("date"), now=self._settings.utc_now())
        count = max(clock.refusals for clock in clocks) if pressed else attempt + 1
        # Our own back-off is never more than we would wait for: chance must not decide whether a host is given up.
        wait = min(backoff_seconds(count, self._settings.random), self._settings.max_retry_wait)
        wait = max(wait, asked.seconds if asked is not None else 0.0)
        if asked is not None:
            notes = ("clock-skew: the server's clock differs from ours by more than a minute",) if asked.skewed else ()
            answer = attrs.evolve(answer, retry_after=asked.seconds, warnings=answer.warnings + notes)
        if pressed:
            for clock in clocks:
                clock.pause(wait)
        if wait > self._settings.max_retry_wait:
            return None, answer
        return (0.0 if pressed else wait), answer

    async def _attempt(
        self, clock: HostClock, target: JudgedUrl, headers: Sequence[tuple[str, str]], wanted: Wanted, *, page: bool
    ) -> Answer:
        try:
            async with clock.request(page=page):
                return await self._exchange(target, headers, wanted)
        except WaitTooLongError as exc:
            failure = FetchFailure(kind=exc.kind, message=str(exc), reason=exc.kind.value, retry_after=exc.seconds)
            return Answer(url=target.url, failure=failure, sent=False)

    async def _exchange(self, target: JudgedUrl, headers: Sequence[tuple[str, str]], wanted: Wanted) -> Answer:
        """One attempt. One deadline covers everything from the look-up to the last byte of the body, another one each silence in it."""
        reading = _Reading(target)
        idle = self._settings.idle_seconds
        failure = None
        try:
            with trio.CancelScope(deadline=trio.current_time() + self._settings.attempt_seconds):
                if math.isinf(idle):
                    return await self._converse(target, headers, wanted, reading, None)
                with trio.CancelScope(deadline=trio.current_time() + idle) as silence:
                    return await self._converse(target, headers, wanted, reading, _postponing(silence, idle))
        except EgressDeniedError as exc:
            failure = denial(exc)
        except EgressUnreachableError as exc:
            failure = FetchFailure(kind=FetchErrorKind.NETWORK, message=str(exc), reason=exc.code.value)
        except FetchError as exc:
            limit = exc.limit if isinstance(exc, ResponseTooLargeError) else None
            failure = FetchFailure(kind=exc.kind, message=f"{target.host}: {exc}", limit=limit)
        return reading.answer(failure or FetchFailure(kind=FetchErrorKind.TIMEOUT, message=f"{target.host} did not answer in time"))

    async def _converse(
        self,
        target: JudgedUrl,
        headers: Sequence[tuple[str, str]],
        wanted: Wanted,
        reading: _Reading,
        on_bytes: Callable[[int], None] | None,
    ) -> Answer:
        began = trio.current_time()
        exchange = await self._session.begin(target, headers=headers, max_body_bytes=wanted.limit, on_bytes=on_bytes)
        try:
            reading.begin(exchange)
            reading.waited = trio.current_time() - began
            await reading.read(exchange, wanted)
            return reading.answer()
        finally:
            exchange.close()


def _postponing(silence: trio.CancelScope, seconds: float) -> Callable[[int], None]:
    """Moves the deadline of a scope with each block that arrives, so that it bounds silence and not the whole."""

    def arrived(_: int) -> None:
        silence.deadline = trio.current_time() + seconds

    return arrived


class _Reading:
    """What has been read of one answer so far; it outlives the exchange, which may fail at any point."""

    def __init__(self, target: JudgedUrl) -> None:
        self._url = target.url
        self._exchange: OpenExchange | None = None
        self._body: bytes | None = None
        self.waited: float | None = None

    def begin(self, exchange: OpenExchange) -> None:
        self._exchange = exchange

    async def read(self, exchange: OpenExchange, wanted: Wanted) -> None:
        if not wanted.of(exchange.head.status):
            await exchange.drain()
        elif wanted.cut is None:
            self._body = await exchange.read_body()
        else:
            self._body = await self._read_cut(exchange, wanted.cut)

    async def _read_cut(self, exchange: OpenExchange, cut: int) -> bytes:
        pieces, size = [], 0
        while size < cut and (piece := await exchange.piece()):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)[:cut]

    def answer(self, failure: FetchFailure | None = None) -> Answer:
        exchange = self._exchange
        if exchange is None:
            return Answer(url=self._url, failure=failure)
        return Answer(
            url=self._url,
            status=exchange.head.status,
            headers=exchange.head.headers,
            fields=exchange.head.fields,
            body=self._body,
            warnings=exchange.warnings,
            facts=exchange.facts(),
            waited=self.waited,
            failure=None if failure is None else attrs.evolve(failure, status=exchange.head.status),
        )
