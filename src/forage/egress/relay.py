"""Bytes between two connected sockets: the ends of a proxy, and a tunnel between them.

Owns the system calls, half-closed streams and fairness. It knows no HTTP, no policy and no limits: whoever relays is told of each block
and may stop it there.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import trio

__all__ = ["Peer", "PeerLostError", "relay"]

_BLOCK = 65_536  # bytes asked of the kernel at once
_BLOCKS_PER_CHECKPOINT = 16  # two ends that are always ready must not keep other tasks and deadlines waiting


class PeerLostError(Exception):
    """The connection broke. ``peer`` is the end at which it was seen."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        super().__init__("the connection was lost")


class Peer:
    """One end: a connected, non-blocking socket, which it owns. One task may receive, another one send."""

    __slots__ = ("_blocks", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._blocks = 0

    async def receive(self) -> bytes:
        """The next bytes, empty at the end of the stream. Raises PeerLostError."""
        self._blocks += 1
        if self._blocks % _BLOCKS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(_BLOCK)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as exc:
                raise PeerLostError(self) from exc

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises PeerLostError."""
        view: bytes | memoryview = data
        while True:
            try:
                taken = self._socket.send(view)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
                continue
            except OSError as exc:
                raise PeerLostError(self) from exc
            if taken == len(view):
                return
            view = memoryview(view)[taken:]

    def has_left(self) -> bool:
        """Whether the other end has gone, as far as that can be seen; what has arrived stays there."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def finish(self) -> None:
        """Say that nothing more will be sent. Never raises."""
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)

    def reset_at_close(self) -> None:
        """Let `close` reset the connection, so that the other end cannot take what it has for the whole. Never raises."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close at once; nobody may be waiting for the socket. Idempotent, never raises."""
        self._socket.close()


async def relay(
    first: Peer, second: Peer, *, on_first: Callable[[int], None], on_second: Callable[[int], None], on_half: Callable[[], None]
) -> None:
    """Carry bytes both ways until both streams have ended; the end of one is passed on as the end of that direction.

    ``on_first`` and ``on_second`` are told the size of each block that this end sent, before it is passed on; what they raise ends the
    relay. ``on_half`` is called when the first of the two has ended. Raises PeerLostError. Whatever was raised first is raised alone.
    Closes neither end.
    """
    failure: Exception | None = None

    async def carry(source: Peer, sink: Peer, told: Callable[[int], None]) -> None:
        nonlocal failure
        try:
            while data := await source.receive():
                told(len(data))
                await sink.send(data)
            sink.finish()
            on_half()
        except Exception as exc:  # noqa: BLE001 - raised below, outside of the nursery
            failure = failure or exc
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, first, second, on_first)
        nursery.start_soon(carry, second, first, on_second)
    if failure is not None:
        raise failure
