"""Non-blocking byte streams: the `Channel` protocol, and channels over plain and TLS sockets.

Shape: try the system call first, and wait on the reactor only when the kernel says so. Nothing here knows HTTP or addresses.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from forage.errors import FetchError, FetchErrorKind

__all__ = ["Channel", "SocketChannel", "TlsChannel"]


class Channel(Protocol):
    """A connected byte stream. ``receive`` and ``send`` never wait; both raise FetchError (NETWORK) when the connection is lost."""

    def receive(self, limit: int, /) -> bytes | None:
        """Up to ``limit`` bytes, empty at the end of the stream, None when nothing is there yet."""
        ...

    def send(self, data: bytes | memoryview, /) -> int:
        """How many bytes were taken; 0 when none can be taken yet."""
        ...

    async def readable(self) -> None:
        """Wait until ``receive`` may have something. Always a checkpoint."""
        ...

    async def ready(self) -> None:
        """Wait until ``send`` may take something or ``receive`` may have something. Always a checkpoint."""
        ...

    def close(self) -> None:
        """Close at once. Idempotent, never raises."""
        ...


def _lost(exc: Exception) -> FetchError:
    return FetchError(FetchErrorKind.NETWORK, f"the connection was lost ({type(exc).__name__})")


async def _wait(wait: Callable[[socket.socket], Awaitable[None]], sock: socket.socket) -> None:
    try:
        await wait(sock)
    except trio.ClosedResourceError as exc:  # another task closed the channel under us
        raise _lost(exc) from exc


def _close(sock: socket.socket) -> None:
    """Close, and wake whoever waits: the kernel forgets a closed descriptor, and they would wait for ever."""
    if sock.fileno() >= 0:
        trio.lowlevel.notify_closing(sock)
        sock.close()


async def _either_way(sock: socket.socket) -> None:
    lost: list[FetchError] = []

    async def first(wait: Callable[[socket.socket], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await _wait(wait, sock)
        except FetchError as exc:
            lost.append(exc)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first, trio.lowlevel.wait_readable, nursery.cancel_scope)
        nursery.start_soon(first, trio.lowlevel.wait_writable, nursery.cancel_scope)
    if lost:
        raise lost[0]


class SocketChannel:
    """A channel over a connected, non-blocking TCP socket, which it owns."""

    __slots__ = ("_socket",)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def receive(self, limit: int, /) -> bytes | None:
        try:
            return self._socket.recv(limit)
        except BlockingIOError:
            return None
        except OSError as exc:
            raise _lost(exc) from exc

    def send(self, data: bytes | memoryview, /) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise _lost(exc) from exc

    async def readable(self) -> None:
        await _wait(trio.lowlevel.wait_readable, self._socket)

    async def ready(self) -> None:
        await _either_way(self._socket)

    def close(self) -> None:
        _close(self._socket)


class TlsChannel:
    """A channel over a non-blocking TLS socket, which it owns.

    ``at_close`` is called with the session just before the end, so that the next connection of the lane can resume it.
    """

    __slots__ = ("_at_close", "_receive_needs_write", "_send_needs_read", "_socket")

    def __init__(self, sock: ssl.SSLSocket, at_close: Callable[[ssl.SSLSession], None] | None = None) -> None:
        self._socket = sock
        self._at_close = at_close
        self._receive_needs_write = False  # key updates turn the direction around
        self._send_needs_read = False

    def receive(self, limit: int, /) -> bytes | None:
        try:
            return self._socket.recv(limit)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            self._receive_needs_write = True
            return None
        except ssl.SSLZeroReturnError:
            return b""
        except OSError as exc:  # an end without the closing alert is a cut, not an end (RFC 9112 9.8)
            raise _lost(exc) from exc

    def send(self, data: bytes | memoryview, /) -> int:
        try:
            return self._socket.send(data)
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self._send_needs_read = True
            return 0
        except OSError as exc:
            raise _lost(exc) from exc

    async def readable(self) -> None:
        if self._receive_needs_write:
            self._receive_needs_write = False
            await _wait(trio.lowlevel.wait_writable, self._socket)
        elif self._socket.pending():
            await trio.lowlevel.checkpoint()  # decrypted already: the kernel would not report it
        else:
            await _wait(trio.lowlevel.wait_readable, self._socket)

    async def ready(self) -> None:
        if self._send_needs_read:
            self._send_needs_read = False
            await _wait(trio.lowlevel.wait_readable, self._socket)
        else:
            await _either_way(self._socket)

    async def handshake(self) -> None:
        """Raises ssl.SSLError or OSError; the channel is then still to be closed."""
        while True:
            try:
                self._socket.do_handshake()
                return
            except ssl.SSLWantReadError:
                await _wait(trio.lowlevel.wait_readable, self._socket)
            except ssl.SSLWantWriteError:
                await _wait(trio.lowlevel.wait_writable, self._socket)

    def abort(self) -> None:
        """Close without a word to the peer: for a handshake that did not come to an end."""
        self._at_close = None
        _close(self._socket)

    def close(self) -> None:
        at_close, self._at_close = self._at_close, None
        try:
            session = self._socket.session if at_close is not None else None
            # Sends the closing alert without waiting for the other one; OpenSSL voids a session that ends without it.
            self._socket.unwrap()
        except (OSError, ValueError):
            pass
        finally:
            _close(self._socket)
        if at_close is not None and session is not None:
            at_close(session)
