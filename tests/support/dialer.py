"""Dialers for tests: they record what would be dialled, and reach loopback or nothing.

A pinned connector compares the peer of a socket with the address that it asked for. `MappingDialer` plays a network in which any address
has a server: it connects to a loopback port and gives the socket the peer name that a real connection would have.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from forage.egress import SocketDialer
from tests.support.network_guard import is_loopback

__all__ = ["MappingDialer", "RecordingDialer", "SocketPairDialer"]

Place = tuple[str, int]


class _PretendingSocket(socket.socket):
    """A connected socket that says another peer name, of another family where need be."""

    pretended: Place

    @property
    def family(self) -> int:  # type: ignore[override]  # typeshed has an enumeration
        return socket.AF_INET6 if ":" in self.pretended[0] else socket.AF_INET

    def getpeername(self) -> Any:
        return self.pretended


def _pretend(sock: socket.socket, place: Place) -> socket.socket:
    pretending = _PretendingSocket(fileno=sock.detach())
    pretending.pretended = place
    pretending.setblocking(False)
    return pretending


class RecordingDialer:
    """Records every address in ``dialled`` and refuses all that are not loopback."""

    def __init__(self) -> None:
        self.dialled: list[Place] = []
        self._dialer = SocketDialer()

    async def dial(self, address: str, port: int) -> socket.socket:
        self.dialled.append((address, port))
        if not is_loopback(address):
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError(f"{address} is not loopback")
        return await self._dialer.dial(address, port)


class MappingDialer(RecordingDialer):
    """Connects the places of ``servers`` to loopback: an address (any port) or an address with a port leads to a loopback place.

    What is not there is refused; ``delays`` holds an address back for some seconds first.
    """

    def __init__(self, servers: Mapping[str | Place, Place], *, delays: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.servers = dict(servers)
        self.delays = dict(delays or {})

    async def dial(self, address: str, port: int) -> socket.socket:
        self.dialled.append((address, port))
        await trio.sleep(self.delays.get(address, 0.0))
        place = self.servers.get((address, port)) or self.servers.get(address)
        if place is None:
            raise ConnectionRefusedError(f"no server plays {address}")
        assert is_loopback(place[0])
        return _pretend(await self._dialer.dial(*place), (address, port))


class SocketPairDialer:
    """Hands one end of a socket pair to the connector and the other to ``serve``: sockets without a network, or a port."""

    def __init__(self, nursery: trio.Nursery, serve: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._serve = serve
        self.dialled: list[Place] = []

    async def dial(self, address: str, port: int) -> socket.socket:
        self.dialled.append((address, port))
        await trio.lowlevel.checkpoint()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._nursery.start_soon(self._serve_one, theirs)
        return _pretend(ours, (address, port))

    async def _serve_one(self, sock: socket.socket) -> None:
        async with trio.SocketStream(trio.socket.from_stdlib_socket(sock)) as stream:
            await self._serve(stream)
