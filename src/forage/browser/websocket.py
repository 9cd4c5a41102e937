"""The transport over a WebSocket, for a browser that listens on a port of this machine.

Owns the connection and its limits; the protocol itself is trio-websocket's. Who may reach the port may drive the browser, so it is only
ever one on loopback; on machines that others use the pipe is the better transport.
"""

from __future__ import annotations

from typing import Final

import trio
import trio_websocket

from forage.browser.frames import FrameGate
from forage.browser.oversized import Oversized
from forage.browser.transport import MESSAGE_LIMIT
from forage.errors import BrowserLostError

__all__ = ["WebSocketTransport", "open_websocket"]

_BLOCK: Final = 262_144
_ROOM: Final = 4_096


class _GatedStream(trio.abc.Stream):
    """A stream whose incoming bytes pass a `FrameGate`. No more is read of it before the messages that came are taken."""

    def __init__(self, stream: trio.SocketStream, limit: int) -> None:
        self._stream = stream
        self._gate = FrameGate(limit)
        self._some, self._none = trio.Event(), trio.Event()
        self._over = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            while data := bytes(await self._stream.receive_some(max_bytes)):
                passed = self._gate.feed(data)
                if self._gate.messages:
                    self._none = trio.Event()
                    self._some.set()
                    await self._none.wait()
                if passed:
                    return passed
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end()
            raise
        self._end()
        return b""

    async def message(self) -> str | Oversized | None:
        """The next message that was taken out, None at the end of the stream."""
        messages = self._gate.messages
        while not messages:
            if self._over:
                return None
            self._some = trio.Event()
            await self._some.wait()
        found = messages.popleft()
        if not messages:
            self._none.set()
        return found

    def add(self, message: str) -> None:
        """A message that came in parts, which the reader has put together."""
        self._gate.messages.append(message)
        self._some.set()

    def _end(self) -> None:
        self._over = True
        self._some.set()
        self._none.set()

    async def aclose(self) -> None:
        self._end()
        await self._stream.aclose()


class WebSocketTransport:
    """Messages over an open WebSocket."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, stream: _GatedStream) -> None:
        self._socket = socket
        self._stream = stream

    async def send(self, text: str) -> None:
        try:
            await self._socket.send_message(text)
        except trio_websocket.ConnectionClosed as exc:
            raise BrowserLostError from exc

    async def receive(self) -> str | Oversized | None:
        return await self._stream.message()

    async def collect(self) -> None:
        """Take over the messages that came in parts, until the end."""
        try:
            while True:
                message = await self._socket.get_message()
                self._stream.add(message if isinstance(message, str) else message.decode("utf-8", "replace"))
        except trio_websocket.ConnectionClosed:
            return

    async def aclose(self) -> None:
        # No closing handshake: a browser that hangs would not answer it, and one that is about to be killed need not.
        await trio.aclose_forcefully(self._stream)


async def open_websocket(nursery: trio.Nursery, port: int, path: str, *, limit: int = MESSAGE_LIMIT) -> WebSocketTransport:
    """Connect to a browser on this machine; its reader runs in ``nursery``. Raises BrowserLostError.

    Not within a cancel scope that ends before ``nursery`` does: the reader would be left in it.
    """
    try:
        stream = _GatedStream(await trio.open_tcp_stream("127.0.0.1", port), limit)
    except OSError as exc:
        raise BrowserLostError("the browser does not listen on its port") from exc
    opened = False
    try:
        socket = await trio_websocket.wrap_client_stream(
            nursery,
            stream,  # type: ignore[arg-type]  # any stream will do, as its documentation says
            f"127.0.0.1:{port}",
            path,
            max_message_size=limit + _ROOM,
            receive_buffer_size=_BLOCK,
        )
        opened = True
    except (trio_websocket.HandshakeError, trio_websocket.ConnectionClosed) as exc:
        raise BrowserLostError("the browser refuses the connection") from exc
    finally:
        if not opened:
            await trio.aclose_forcefully(stream)
    transport = WebSocketTransport(socket, stream)
    nursery.start_soon(transport.collect)
    return transport
