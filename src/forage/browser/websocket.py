"""The transport over a WebSocket, for a browser that listens on a port of this machine.

Owns the connection and its limits; the protocol itself is trio-websocket's. Who may reach the port may drive the browser, so it is only
ever one on loopback; on machines that others use the pipe is the better transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio
import trio_websocket

from forage.browser.frames import FrameGate
from forage.browser.transport import MESSAGE_LIMIT, Message
from forage.errors import BrowserLostError

__all__ = ["WebSocketTransport", "open_websocket"]

_BLOCK: Final = 262_144
_ROOM: Final = 4_096


class _GatedStream(trio.abc.Stream):
    """A stream whose incoming bytes pass a `FrameGate`. No more is read of it before the messages that came are taken.

    They are taken within the task that reads: to wake another one for each block would cost as much as what is done with them.
    """

    def __init__(self, stream: trio.SocketStream, limit: int) -> None:
        self._stream = stream
        self._gate = FrameGate(limit)
        self._take: Callable[[Message], None] | None = None
        self._reading, self._over = trio.Event(), trio.Event()
        self._failure: BrowserLostError | None = None
        self._held: list[bytes] | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._held is None:
            await self._stream.send_all(data)
        else:
            self._held.append(bytes(data))

    def hold(self) -> None:
        """Keep what is sent until it is released."""
        self._held = []

    async def release(self) -> None:
        """Send what was kept, in one piece."""
        held, self._held = self._held, None
        if held:
            await self._stream.send_all(b"".join(held))

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            while data := bytes(await self._stream.receive_some(max_bytes)):
                passed = self._gate.feed(data)
                self._hand_on()
                while self._gate.messages and not self._over.is_set():
                    await self._reading.wait()
                    self._hand_on()
                if passed:
                    return passed
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end()
            raise
        self._end()
        return b""

    async def read(self, take: Callable[[Message], None]) -> None:
        """Have ``take`` called with each message, until the end of the stream. Raises what it raised."""
        self._take = take
        self._hand_on()
        self._reading.set()
        try:
            await self._over.wait()
        finally:
            self._take = None
            self._reading = trio.Event()
        if self._failure is not None:
            raise self._failure

    def add(self, message: str) -> None:
        """A message that came in parts, which the reader has put together."""
        self._gate.messages.append(message)
        self._hand_on()

    def _hand_on(self) -> None:
        messages = self._gate.messages
        try:
            while messages and self._take is not None and self._failure is None:
                self._take(messages.popleft())
        except BrowserLostError as exc:
            self._failure = exc
            self._end()

    def _end(self) -> None:
        self._over.set()
        self._reading.set()

    async def aclose(self) -> None:
        self._end()
        await self._stream.aclose()


class WebSocketTransport:
    """Messages over an open WebSocket."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, stream: _GatedStream) -> None:
        self._socket = socket
        self._stream = stream

    async def send(self, texts: Sequence[str]) -> None:
        try:
            self._stream.hold()
            for text in texts:
                await self._socket.send_message(text)
            await self._stream.release()
        except (trio_websocket.ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise BrowserLostError from exc

    async def read(self, take: Callable[[Message], None]) -> None:
        await self._stream.read(take)

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
