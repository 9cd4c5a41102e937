"""A wire without sockets: connections are pairs of byte queues in one trio run.

`MemoryWire` is the `Wire` of a session; each connection is handed to a handler as a `MemoryPeer`, the server's end. Nothing waits on
real I/O, so `autojump_clock` and step-by-step cancellation work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from forage.egress import EgressAddress, JudgedUrl
from forage.egress.connector import dial_order
from forage.egress.wire import Connected
from forage.errors import EgressCode, EgressUnreachableError, FetchError, FetchErrorKind

__all__ = ["MemoryChannel", "MemoryPeer", "MemoryWire"]


class _Queue:
    """Bytes in one direction. ``room`` bounds what is held; ``lost`` stands for a reset. All who wait for a connection share its lot."""

    def __init__(self, room: int, lot: trio.lowlevel.ParkingLot) -> None:
        self.data = bytearray()
        self.room = room
        self.ended = False
        self.lost = False
        self.lot = lot

    def wake(self) -> None:
        self.lot.unpark_all()


class MemoryChannel:
    """The client's end, a `Channel`."""

    def __init__(self, incoming: _Queue, outgoing: _Queue) -> None:
        self._in = incoming
        self._out = outgoing
        self.closed = False

    def receive(self, limit: int, /) -> bytes | None:
        assert not self.closed
        if self._in.data:
            data = bytes(self._in.data[:limit])
            del self._in.data[:limit]
            self._in.wake()
            return data
        if self._in.lost:
            raise FetchError(FetchErrorKind.NETWORK, "the connection was lost (reset)")
        return b"" if self._in.ended else None

    def send(self, data: bytes | memoryview, /) -> int:
        assert not self.closed
        if self._out.lost or self._out.ended:
            raise FetchError(FetchErrorKind.NETWORK, "the connection was lost (reset)")
        taken = min(len(data), self._out.room - len(self._out.data))
        if taken > 0:
            self._out.data += data[:taken]
            self._out.wake()
        return max(taken, 0)

    async def readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._in.data or self._in.ended or self._in.lost):
            await self._park()

    async def ready(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._in.data or self._in.ended or self._in.lost or len(self._out.data) < self._out.room):
            await self._park()

    async def _park(self) -> None:
        await self._in.lot.park()
        if self.closed:
            raise FetchError(FetchErrorKind.NETWORK, "the connection was lost (closed)")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._out.ended = True
            self._out.wake()
            self._in.wake()


class MemoryPeer:
    """The server's end: what a handler reads requests from and answers on."""

    def __init__(self, incoming: _Queue, outgoing: _Queue, *, address: str, port: int) -> None:
        self._in = incoming
        self._out = outgoing
        self._buffer = b""
        self.address = address
        self.port = port

    async def receive(self) -> bytes:
        """The next bytes; empty once the client closed."""
        while not (self._in.data or self._in.ended):
            await self._in.lot.park()
        data = bytes(self._in.data)
        self._in.data.clear()
        self._in.wake()
        return data

    async def request(self) -> bytes | None:
        """The head of the next request, without its blank line; None once the client closed."""
        while b"\r\n\r\n" not in self._buffer:
            data = await self.receive()
            if not data:
                return None
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head

    def send(self, data: bytes) -> None:
        """Deliver at once; the client's end has room for everything."""
        self._out.data += data
        self._out.wake()

    def close(self) -> None:
        self._out.ended = True
        self._out.wake()

    def reset(self) -> None:
        self._out.lost = True
        self._in.lost = True
        self._out.wake()


Handler = Callable[[MemoryPeer], Awaitable[None]]


class MemoryWire:
    """Connects to ``handler``, run in ``nursery`` for each connection. ``dialled`` lists the addresses, ``open`` what is not closed."""

    def __init__(
        self, nursery: trio.Nursery, handler: Handler, *, refuse: Sequence[str] = (), delay: float = 0.0, room: int = 1 << 20
    ) -> None:
        self._nursery = nursery
        self._handler = handler
        self._refuse = frozenset(refuse)
        self._delay = delay
        self._room = room
        self.dialled: list[str] = []
        self.channels: list[MemoryChannel] = []

    @property
    def open(self) -> list[MemoryChannel]:
        return [channel for channel in self.channels if not channel.closed]

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        tried: list[str] = []
        for address in dial_order(addresses):
            tried.append(address)
            self.dialled.append(address)
            await trio.sleep(self._delay)
            if address not in self._refuse:
                return Connected(channel=self._open(address, target.port), address=address, tried=tuple(tried))
        raise EgressUnreachableError(EgressCode.CONNECT_FAILED, target.host, rule="D5")

    def _open(self, address: str, port: int) -> MemoryChannel:
        lot = trio.lowlevel.ParkingLot()
        down, up = _Queue(1 << 30, lot), _Queue(self._room, lot)
        channel = MemoryChannel(down, up)
        self.channels.append(channel)
        self._nursery.start_soon(self._handler, MemoryPeer(up, down, address=address, port=port))
        return channel
