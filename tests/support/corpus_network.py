"""The network of one story of the egress corpus: a resolver, a dialer that reaches nothing but one loopback server, and that server.

Any address has a web server here, unless the story says that it is unreachable. All connections lead to one listener, which reads the
first byte to tell TLS from plain text, answers the story's responses in the order of the requests and notes who was asked for what.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import attrs
import trio

from forage.egress import DnsAnswers
from forage.errors import EgressCode, EgressUnreachableError
from tests.support.authority import server_context
from tests.support.dialer import MappingDialer

__all__ = ["STORY_SECOND", "CorpusNetwork", "Seen", "SuccessiveAnswers", "open_corpus_network"]

STORY_SECOND = 0.1
"""Real seconds that a second of a story takes; policies of a story shorten their deadlines alike."""


class SuccessiveAnswers:
    """Resolver with a list of look-ups for each name, the last one repeated; see the corpus for the failures that begin with ``!``."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._names = names
        self.asked: list[str] = []

    async def resolve(self, host: str) -> DnsAnswers:
        turn = self.asked.count(host)
        self.asked.append(host)
        await trio.lowlevel.checkpoint()
        lookups = self._names.get(host, [["!NXDOMAIN"]])
        answers = lookups[min(turn, len(lookups) - 1)]
        if answers and answers[0].startswith("!"):
            kind, _, value = answers[0].partition(":")
            if kind == "!TIMEOUT":
                await trio.sleep_forever()
            elif kind == "!SLOW":
                await trio.sleep(float(value) * STORY_SECOND)
                answers = answers[1:] or ["93.184.216.34"]
            else:
                raise EgressUnreachableError(EgressCode.DNS_FAILURE, host)
        return DnsAnswers(addresses=tuple(answers), ttl=0.0)


@attrs.frozen(kw_only=True, eq=False)
class Seen:
    """One request as the server saw it: the address that was dialled, the number of the connection, the server name of TLS."""

    address: str
    connection: int
    server_name: str | None
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None


class _CorpusDialer(MappingDialer):
    """Leads every address but the unreachable ones to the listener, and remembers which local port stands for which address."""

    def __init__(self, place: tuple[str, int], unreachable: Sequence[str]) -> None:
        super().__init__({})
        self._place = place
        self._unreachable = frozenset(unreachable)
        self.address_of: dict[int, str] = {}

    async def dial(self, address: str, port: int) -> socket.socket:
        if address not in self._unreachable:
            self.servers[address] = self._place
        sock = await super().dial(address, port)
        self.address_of[socket.socket.getsockname(sock)[1]] = address
        return sock


@cache
def _context(names: tuple[str, ...]) -> ssl.SSLContext:
    return server_context(*(names or ("nobody.invalid",)))


class CorpusNetwork:
    """A running network. ``requests`` in order of arrival; ``dialer.dialled`` lists every attempt."""

    def __init__(
        self, resolver: SuccessiveAnswers, responses: Sequence[Mapping[str, Any]], behaviour: str | None, names: Sequence[str]
    ) -> None:
        self.resolver = resolver
        self.dialer = _CorpusDialer(("127.0.0.1", 1), ())
        self.requests: list[Seen] = []
        self._responses = responses
        self._behaviour = behaviour
        self._names = tuple(names)
        self._connections = 0
        self._asked: dict[trio.lowlevel.Task, str | None] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        number, self._connections = self._connections, self._connections + 1
        try:
            first = await stream.socket.recv(1, socket.MSG_PEEK)
            if self._behaviour == "reset":
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif self._behaviour == "garbage":
                await stream.send_all(b"\x00\xff\x17garbage\r\n\r\n")
            elif first == b"\x16":
                await self._serve_tls(stream, number)
            elif first:
                await self._serve(stream, stream, number)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # a client that does not like what it sees goes away
        finally:
            self._asked.pop(trio.lowlevel.current_task(), None)
            await trio.aclose_forcefully(stream)

    async def _serve_tls(self, stream: trio.SocketStream, number: int) -> None:
        context = _context(self._names)
        context.sni_callback = _note_name
        _naming[trio.lowlevel.current_task()] = self
        try:
            secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
            await secure.do_handshake()
            await self._serve(secure, stream, number)
        finally:
            del _naming[trio.lowlevel.current_task()]

    def note_name(self, name: str | None) -> None:
        self._asked[trio.lowlevel.current_task()] = name

    async def _serve(self, stream: trio.abc.Stream, raw: trio.SocketStream, number: int) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = await stream.receive_some(65_536)
                if not data:
                    return
                buffer += bytes(data)
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            method, target, _ = line.split(" ")
            headers = tuple((name.lower(), value.strip()) for name, _, value in (field.partition(":") for field in fields))
            length = int(dict(headers).get("content-length", "0"))
            while len(buffer) < length:
                buffer += bytes(await stream.receive_some(65_536))
            seen = Seen(
                address=self.dialer.address_of[raw.socket.getpeername()[1]],
                connection=number,
                server_name=self._asked.get(trio.lowlevel.current_task()),
                method=method,
                target=target,
                headers=headers,
                body=buffer[:length],
            )
            buffer = buffer[length:]
            self.requests.append(seen)
            if self._response_of(seen).get("reset"):
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            await stream.send_all(self._response(seen))

    def _response_of(self, seen: Seen) -> Mapping[str, Any]:
        turn = self.requests.index(seen)
        return self._responses[turn] if turn < len(self._responses) else {"status": 200}

    def _response(self, seen: Seen) -> bytes:
        response = self._response_of(seen)
        body = str(response.get("body", "")).encode()
        fields = "".join(f"{name}: {value}\r\n" for name, value in response.get("headers", []))
        bodiless = seen.method == "HEAD" or response["status"] in (204, 304)
        head = f"HTTP/1.1 {response['status']} X\r\n{fields}" + ("" if bodiless else f"Content-Length: {len(body)}\r\n") + "\r\n"
        return head.encode("utf-8", "surrogatepass") + (b"" if bodiless else body)


_naming: dict[trio.lowlevel.Task, CorpusNetwork] = {}  # contexts are shared between stories, names belong to one connection


def _note_name(_: object, name: str | None, __: ssl.SSLContext) -> None:
    task = trio.lowlevel.current_task()
    _naming[task].note_name(name)


@asynccontextmanager
async def open_corpus_network(
    dns: Mapping[str, Sequence[Sequence[str]]],
    responses: Sequence[Mapping[str, Any]],
    *,
    unreachable: Sequence[str] = (),
    behaviour: str | None = None,
    cert_names: Sequence[str],
) -> AsyncIterator[CorpusNetwork]:
    """Serve one story until the block ends."""
    network = CorpusNetwork(SuccessiveAnswers(dns), responses, behaviour, cert_names)
    failure: Exception | None = None  # of the block, raised bare and not in a group of the nursery
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        network.dialer = _CorpusDialer(("127.0.0.1", listeners[0].socket.getsockname()[1]), unreachable)
        await nursery.start(trio.serve_listeners, network.serve, listeners)
        try:
            yield network
        except Exception as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
