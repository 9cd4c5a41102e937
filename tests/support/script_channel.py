"""Answers as scripts without a network: bytes in given blocks, then an end. One exchange takes some tens of microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import trio

from forage.egress import EgressAddress, EgressPolicy, EgressSession, JudgedUrl, Received
from forage.egress.wire import Connected
from forage.errors import FetchError, FetchErrorKind

__all__ = ["Outcome", "ScriptChannel", "outcome_of", "run_script"]


class ScriptChannel:
    """A channel that gives ``blocks`` one by one once a request was sent, then the end (or a reset)."""

    def __init__(self, blocks: Iterable[bytes], *, reset: bool = False) -> None:
        self._blocks = iter(blocks)
        self._reset = reset
        self._asked = False
        self.closed = False

    def receive(self, limit: int, /) -> bytes | None:
        if not self._asked:
            return None
        block = next(self._blocks, b"")
        if not block and self._reset:
            raise FetchError(FetchErrorKind.NETWORK, "the connection was lost (reset)")
        return block

    def send(self, data: bytes | memoryview, /) -> int:
        self._asked = True
        return len(data)

    async def readable(self) -> None:
        await trio.lowlevel.checkpoint()

    async def ready(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self.closed = True


class _ScriptWire:
    def __init__(self, channel: ScriptChannel) -> None:
        self._channel = channel

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        return Connected(channel=self._channel, address=addresses[0].address, tried=(addresses[0].address,))


@attrs.frozen
class Outcome:
    """What an exchange came to: an answer, or the kind of its failure; the status where a head arrived."""

    status: int | None
    kind: FetchErrorKind | None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    warnings: tuple[str, ...] = ()


async def run_script(blocks: Iterable[bytes], *, limit: int = 1 << 20, method: str = "GET", reset: bool = False) -> Received:
    """One exchange with the script; asserts that its connection does not outlive the session."""
    channel = ScriptChannel(blocks, reset=reset)
    try:
        async with EgressSession(_POLICY, wire=_ScriptWire(channel)) as session:
            return await session.exchange("http://93.184.216.34/", max_body_bytes=limit, method=method)
    finally:
        assert channel.closed


_POLICY = EgressPolicy()


async def outcome_of(blocks: Iterable[bytes], *, limit: int = 1 << 20, method: str = "GET", reset: bool = False) -> Outcome:
    """As `run_script`, failures of the answer included; any other exception is a defect and goes through."""
    try:
        received = await run_script(blocks, limit=limit, method=method, reset=reset)
    except FetchError as exc:
        return Outcome(exc.status, exc.kind)
    return Outcome(received.status, None, received.headers, received.body, received.warnings)
