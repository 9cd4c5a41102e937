"""One HTTP/1.1 exchange on one channel, and the `Wire` that opens channels to judged addresses.

Owns `HttpExchange`: request out, head in, body in. It does not choose addresses (``connector``), judge anything or keep connections
(``session``). The one wait that always happens, for the first byte of the answer, is the checkpoint that every exchange has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from forage.egress.addresses import EgressAddress
from forage.egress.channels import Channel
from forage.egress.facts import TlsFacts
from forage.egress.framing import BodyReader, Framing, body_framing
from forage.egress.head import HeadReader, ResponseHead, parse_head
from forage.egress.rules import JudgedUrl
from forage.errors import FetchError, FetchErrorKind

__all__ = ["Connected", "HttpExchange", "Wire"]

_BLOCK = 65_536  # bytes asked of the kernel at once
_BLOCKS_PER_CHECKPOINT = 4  # a peer that is always ready, with chunks of a byte each, must not keep others and deadlines waiting
_INTERIM = b"HTTP/1.1 1"
_MAX_INTERIM = 16  # 1xx responses before the real one; real servers send one or two


@attrs.frozen(kw_only=True)
class Connected:
    """A new connection and the facts about it. ``tried`` are the addresses dialled, in order; seconds are floats."""

    channel: Channel
    address: str
    tried: tuple[str, ...]
    tls: TlsFacts | None = None
    connect_seconds: float = 0.0
    handshake_seconds: float | None = None


class Wire(Protocol):
    """Opens connections to judged addresses and to nothing else."""

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        """A connection to one of ``addresses``, through TLS for https. Raises EgressUnreachableError (CONNECT_FAILED)."""
        ...


class HttpExchange:
    """One request and its response on a channel that it does not own.

    Use: ``start`` once, then ``receive_body`` until it answers empty bytes. ``began`` says whether any byte of an answer came;
    ``reusable`` whether the channel may carry another exchange: only once the body is complete, nothing followed it, the request went out
    whole and neither side asked to close. ``on_bytes`` is told the size of each block that arrives, so that a caller can move its own
    deadline while there is progress.
    """

    __slots__ = ("_blocks", "_body", "_channel", "_on_bytes", "_reader", "_rest", "_sent", "began", "framing", "head", "interim")

    head: ResponseHead
    framing: Framing

    def __init__(self, channel: Channel, on_bytes: Callable[[int], None] | None = None) -> None:
        self._channel = channel
        self._on_bytes = on_bytes
        self._reader = HeadReader()
        self._rest = b""
        self._blocks = 0
        self._sent = False
        self._body: BodyReader | None = None
        self.began = False
        self.interim = 0

    async def start(self, request: bytes, method: str) -> ResponseHead:
        """Send the request and read the final head. Raises FetchError (NETWORK, PROTOCOL)."""
        taken = self._channel.send(request)
        if taken == len(request):
            self._sent = True
            head = None
        else:
            head = await self._send_slowly(request, taken)
        if head is None:
            await self._channel.readable()
            head = await self._final_head()
        self.head = head
        self.framing = body_framing(head, method)
        self._body = self.framing.reader()
        return head

    async def _final_head(self) -> ResponseHead:
        while True:
            data = await self._receive()
            if not data:
                raise FetchError(FetchErrorKind.NETWORK, "the connection was closed before an answer was complete")
            head = self._take(data)
            if head is not None:
                return head

    def _take(self, data: bytes) -> ResponseHead | None:
        """The head of the answer once ``data`` completes it; what follows is the rest. Interim answers are counted and dropped."""
        self.began = True
        while data:
            raw = self._reader.feed(data)
            if raw is None:
                return None
            data, self._reader = self._reader.rest, HeadReader()
            head = parse_head(raw)
            if head.status >= 200:
                self._rest = data
                return head
            self.interim += 1
            if head.status == 101 or self.interim > _MAX_INTERIM:
                raise FetchError(FetchErrorKind.PROTOCOL, "the answer is an upgrade nobody asked for, or interim answers without end")
        return None

    async def receive_body(self) -> bytes:
        """The next bytes of the body, transfer framing taken off; empty at its end. Raises FetchError (INCOMPLETE_BODY, PROTOCOL)."""
        body = self._body
        assert body is not None
        if self._rest:
            data, self._rest = self._rest, b""
            piece = body.feed(data)
            if piece:
                return piece
        while not body.done:
            if body.failure is not None:
                raise body.failure
            try:
                data = await self._receive()
            except FetchError as exc:
                raise FetchError(FetchErrorKind.INCOMPLETE_BODY, "the connection was lost within the body") from exc
            if not data:
                body.end()
                return b""
            piece = body.feed(data)
            if piece:
                return piece
        return b""

    @property
    def has_rest(self) -> bool:
        """Whether something of the body is here already, or it has none."""
        return bool(self._rest) or (self._body is not None and self._body.done)

    @property
    def reusable(self) -> bool:
        body = self._body
        return body is not None and body.done and not body.surplus and not self._rest and self._sent and self.framing.reusable

    async def _receive(self) -> bytes:
        self._blocks += 1
        if self._blocks % _BLOCKS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()
        while True:
            data = self._channel.receive(_BLOCK)
            if data is not None:
                if self._on_bytes is not None:
                    self._on_bytes(len(data))
                return data
            await self._channel.readable()

    async def _send_slowly(self, request: bytes, taken: int) -> ResponseHead | None:
        """Send what the kernel takes only bit by bit, and stop when an answer begins or the peer stops listening.

        A server may refuse a large request early (413) and read no further; waiting for it to take the rest would wait for ever. The
        connection is then not used again, as the request did not go out whole. What comes meanwhile is read as the heads that it must
        be: a peer that takes nothing and sends interim answers without end would fill the memory. Returns the head if it came whole.
        """
        view = memoryview(request)[taken:]
        while view:
            await self._channel.ready()
            try:
                early = self._channel.receive(_BLOCK)
                if early is None:  # room to send, or records of TLS itself
                    view = view[self._channel.send(view) :]
                    continue
            except FetchError:
                return None  # an answer may still be there to read
            if not early:
                return None
            if self._on_bytes is not None:
                self._on_bytes(len(early))
            head = self._take(early)
            if head is not None or not _INTERIM.startswith(self._reader.start[: len(_INTERIM)]):
                return head
        self._sent = True
        return None
