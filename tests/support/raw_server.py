"""A server of raw answers on loopback: what it sends, when, and how it ends are a test's to choose, byte by byte.

``async with open_raw_server({"/": [Answer(...)]}) as server`` answers the n-th request for a path with the n-th answer, the last one
repeated. The request heads are kept with their times. `answers_from_json` reads the scripts of the fetch vectors.
"""

from __future__ import annotations

import base64
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import attrs
import trio

__all__ = ["Answer", "RawRequest", "RawServer", "answers_from_json", "open_raw_server", "page"]

_PATTERN_BLOCK = 60_000


@attrs.frozen(kw_only=True)
class Repeat:
    """A pattern sent many times over, never held as a whole."""

    data: bytes
    times: int


@attrs.frozen(kw_only=True)
class Answer:
    """Steps in order: bytes, a `Repeat`, a pause in seconds (float), or a function of the server that gives bytes.

    ``end``: ``keep`` waits for the next request on the connection, ``close`` ends it, ``reset`` resets it, ``hang`` sends nothing more.
    ``after`` seconds pass before a ``close``.
    """

    steps: tuple[bytes | float | Repeat | Callable[[RawServer], bytes], ...] = ()
    end: str = "close"
    after: float = 0.0


@attrs.frozen(kw_only=True)
class RawRequest:
    """One request head as received. ``connection`` numbers the connections from 0; ``at`` is trio's time."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    at: float
    server_name: str | None = None

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None


def page(body: bytes = b"<p>hello</p>", *, status: str = "200 OK", headers: Sequence[tuple[str, str]] = (), end: str = "keep") -> Answer:
    """A plain answer with a length."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    return Answer(steps=(head.encode("latin-1") + body,), end=end)


Routes = Mapping[str, Sequence[Answer]]
Responder = Callable[[RawRequest], Answer]


class RawServer:
    """A running server. ``requests`` in order of arrival; ``connections`` counts those accepted.

    ``answered`` says by a request's place when the last bytes of its answer were about to be sent; what never got there is missing.
    """

    def __init__(self, routes: Routes | Responder, host: str, tls: ssl.SSLContext | None) -> None:
        self._routes = routes
        self._tls = tls
        self._counts: dict[str, int] = {}
        self._asked: dict[trio.lowlevel.Task, str | None] = {}  # server names by the task of their connection
        if tls is not None:
            tls.sni_callback = self._note_name
        self.host = host
        self.port = 0
        self.requests: list[RawRequest] = []
        self.answered: dict[int, float] = {}
        self.connections = 0

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def host_header(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host_header}"

    def _answer(self, request: RawRequest) -> Answer:
        if callable(self._routes):
            return self._routes(request)
        answers = self._routes.get(request.target)
        if answers is None:
            return page(b"", status="404 Not Found")
        count = self._counts.get(request.target, 0)
        self._counts[request.target] = count + 1
        return answers[min(count, len(answers) - 1)]

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection; resets and vanished clients are part of the game."""
        number = self.connections
        self.connections += 1
        try:
            if self._tls is None:
                await self._serve(stream, stream, number)
            else:
                secure = trio.SSLStream(stream, self._tls, server_side=True)  # sends the closing alert
                await secure.do_handshake()
                await self._serve(secure, stream, number)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._asked.pop(trio.lowlevel.current_task(), None)
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.abc.Stream, raw: trio.SocketStream, number: int) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = await stream.receive_some(65_536)
                if not data:
                    return
                buffer += bytes(data)
            request, buffer = await self._request(stream, buffer, number)
            place = len(self.requests)
            self.requests.append(request)
            if not await self._send(stream, raw, self._answer(request), place):
                return

    async def _request(self, stream: trio.abc.Stream, buffer: bytes, number: int) -> tuple[RawRequest, bytes]:
        head, _, rest = buffer.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ")
        headers = tuple((name, value.strip()) for name, _, value in (field.partition(":") for field in fields))
        length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
        while len(rest) < length:
            data = await stream.receive_some(65_536)
            if not data:
                break
            rest += bytes(data)
        request = RawRequest(
            method=method,
            target=target,
            headers=headers,
            body=rest[:length],
            connection=number,
            at=trio.current_time(),
            server_name=self._asked.get(trio.lowlevel.current_task()),
        )
        return request, rest[length:]

    def _note_name(self, _: object, name: str | None, __: ssl.SSLContext) -> None:
        self._asked[trio.lowlevel.current_task()] = name

    async def _send(self, stream: trio.abc.Stream, raw: trio.SocketStream, answer: Answer, place: int) -> bool:
        for left, step in zip(range(len(answer.steps) - 1, -1, -1), answer.steps, strict=True):
            if not left:
                self.answered[place] = trio.current_time()
            if isinstance(step, float):
                await trio.sleep(step)
            elif isinstance(step, Repeat):
                await self._send_repeated(stream, step)
            else:
                await stream.send_all(step if isinstance(step, bytes) else step(self))
        if answer.end == "hang":
            await trio.sleep_forever()
        await trio.sleep(answer.after)
        if answer.end == "reset":
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif answer.end == "close" and isinstance(stream, trio.SSLStream):
            await stream.aclose()
        return answer.end == "keep"

    async def _send_repeated(self, stream: trio.abc.Stream, step: Repeat) -> None:
        left, most = step.times, max(1, _PATTERN_BLOCK // max(1, len(step.data)))
        while left:
            times = min(left, most)
            await stream.send_all(step.data * times)
            left -= times


@asynccontextmanager
async def open_raw_server(
    routes: Routes | Responder, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serve on a free port of ``host`` until the block ends."""
    server = RawServer(routes, host, tls)
    failure: Exception | None = None  # of the block, raised bare and not in a group of the nursery
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        server.port = listeners[0].socket.getsockname()[1]
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        try:
            yield server
        except Exception as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def answers_from_json(script: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Answers of a fetch vector, with its names for steps (``b64``, ``tpl``, ``gen``, ``delay_ms``) and ends (``rst``, ``close-after``)."""
    return [
        Answer(
            steps=tuple(_step(step) for step in answer["steps"]),
            end={"rst": "reset", "close-after": "close"}.get(answer["end"], answer["end"]),
            after=answer.get("after_ms", 0) / 1000,
        )
        for answer in script
    ]


def _step(step: Mapping[str, Any]) -> bytes | float | Repeat | Callable[[RawServer], bytes]:
    if "b64" in step:
        return base64.b64decode(step["b64"])
    if "gen" in step:
        return Repeat(data=base64.b64decode(step["gen"]["b64"]), times=step["gen"]["repeat"])
    if "delay_ms" in step:
        return float(step["delay_ms"]) / 1000
    return lambda server: _filled(step["tpl"], server)


def _filled(template: str, server: RawServer) -> bytes:
    text = template.replace("{{ORIGIN}}", server.origin).replace("{{HOST}}", server.host_header)
    before, mark, rest = text.partition("{{HTTP_DATE")
    while mark:
        seconds, _, after = rest.partition("}}")
        then = datetime.now(UTC) + timedelta(seconds=int(seconds or "0"))
        text = f"{before}{format_datetime(then, usegmt=True)}{after}"
        before, mark, rest = text.partition("{{HTTP_DATE")
    return text.encode("latin-1")
