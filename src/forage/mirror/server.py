"""A loopback HTTP server: the smallest one that a browser is content with.

Owns listening, reading heads within limits, keeping connections and writing answers; what is answered is a handler's business. HTTP/1.1
without request bodies: a request that brings one is answered and its connection closed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Final

import attrs
import trio

from forage.errors import CaptureError, InvalidPolicyError
from forage.mirror.answers import Served, SiteAnswer
from forage.mirror.site import Site

__all__ = ["Handler", "LoopbackServer", "MirrorServer", "Request", "Response", "open_loopback_server", "open_mirror_server"]

_MOST_HEAD: Final = 65_536
_BLOCK: Final = 16_384
_IDLE_SECONDS: Final = 300.0
_LINGER_SECONDS: Final = 1.0
_MOST_LINGER: Final = 1 << 20
_REQUEST: Final = re.compile(rb"([A-Z]{1,20}) ([^ ]{1,65536}) HTTP/1\.([01])")
_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_PORT: Final = re.compile(r":[0-9]*\Z")
# A page elsewhere could make a name of its own lead here and read the mirror as its own origin.
_OWN_HOSTS: Final = frozenset(["127.0.0.1", "localhost", "[::1]"])
_MOST_SERVED: Final = 100_000


@attrs.frozen(kw_only=True)
class Request:
    """A request; ``target`` is path and query, header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Response:
    """An answer. ``abort`` closes the connection after so many bytes of it: what a failing server does."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = attrs.field(default=b"", repr=False)
    abort: int | None = None


Handler = Callable[[Request], Awaitable[Response]]


@attrs.frozen(kw_only=True)
class LoopbackServer:
    """A server that listens; ``url`` is its origin, without a slash at the end."""

    url: str


@asynccontextmanager
async def open_loopback_server(handler: Handler, *, port: int = 0) -> AsyncIterator[LoopbackServer]:
    """Listen on 127.0.0.1 and answer by ``handler`` until the block ends; then every connection is closed.

    ``port`` 0: any that is free. Raises InvalidPolicyError for what is no port, CaptureError when it cannot be listened on.
    """
    if type(port) is not int or not 0 <= port <= 65_535:
        raise InvalidPolicyError("port", "a port number", got=port)
    try:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    except OSError as exc:
        raise CaptureError(f"port {port} cannot be listened on ({os.strerror(exc.errno or errno.EADDRINUSE)})") from exc
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, partial(_serve, handler), listeners)
        try:
            yield LoopbackServer(url=f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        finally:
            nursery.cancel_scope.cancel()


async def _serve(handler: Handler, stream: trio.SocketStream) -> None:
    """One connection; whatever its peer does ends it and nothing else."""
    rest = b""
    try:
        while True:
            with trio.move_on_after(_IDLE_SECONDS) as idle:
                head, rest = await _read_head(stream, rest)
            if idle.cancelled_caught or not head or not await _exchange(handler, stream, head):
                return
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def _read_head(stream: trio.SocketStream, data: bytes) -> tuple[bytes, bytes]:
    """A request's head and what came behind it; an empty head at the end of the connection or above the limit."""
    while (end := data.find(b"\r\n\r\n")) < 0:
        block = await stream.receive_some(_BLOCK) if len(data) <= _MOST_HEAD else b""
        if not block:
            return b"", b""
        data += block
    return data[:end], data[end + 4 :]


async def _exchange(handler: Handler, stream: trio.SocketStream, head: bytes) -> bool:
    """Answer one request; True when the connection may carry another."""
    request, keep = _parse(head)
    if request is None:
        answer, keep = Response(status=400), False
    elif not _is_own_host(request.headers.get("host", "")):
        answer = Response(status=421)
    else:
        answer = await handler(request)
    data = _encode(answer, keep=keep, bodiless=request is not None and request.method == "HEAD")
    if answer.abort is not None:
        await stream.send_all(data[: answer.abort])
        return False
    await stream.send_all(data)
    if not keep:
        await _linger(stream)
    return keep


async def _linger(stream: trio.SocketStream) -> None:
    """Take what the peer still sends: closing over unread bytes would reset the connection and lose the answer."""
    with trio.move_on_after(_LINGER_SECONDS):
        await stream.send_eof()
        left = _MOST_LINGER
        while left > 0 and (block := await stream.receive_some(_BLOCK)):
            left -= len(block)


def _parse(head: bytes) -> tuple[Request | None, bool]:
    first, *lines = head.split(b"\r\n")
    found = _REQUEST.fullmatch(first)
    if found is None:
        return None, False
    headers = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    target = found[2].decode("utf-8", "replace")
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:
        target = target[absolute.end() :] or "/"
    with_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keep = found[3] == b"1" and "close" not in headers.get("connection", "").lower() and not with_body
    return Request(method=found[1].decode("ascii"), target=target, headers=headers), keep


def _is_own_host(host: str) -> bool:
    return _PORT.sub("", host).lower() in _OWN_HOSTS


def _encode(answer: Response, *, keep: bool, bodiless: bool) -> bytes:
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Other"
    lines = [f"HTTP/1.1 {answer.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    lines.append(f"Content-Length: {len(answer.body)}")
    if not keep:
        lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if bodiless else head + answer.body


@attrs.define(kw_only=True, eq=False)
class MirrorServer:
    """A mirror that listens. ``log`` holds what was answered, in order; None for a server that keeps none."""

    url: str
    log: list[Served] | None = attrs.field(factory=list)


@asynccontextmanager
async def open_mirror_server(site: Site, *, port: int = 0) -> AsyncIterator[MirrorServer]:
    """Serve a mirror on loopback until the block ends."""
    log: list[Served] = []

    async def handle(request: Request) -> Response:
        answer: SiteAnswer = await trio.to_thread.run_sync(site.answer, request.method, request.target)
        if len(log) < _MOST_SERVED:
            log.append(Served(target=request.target, status=answer.status, outcome=answer.outcome, key=answer.key))
        return Response(status=answer.status, headers=answer.headers, body=answer.body)

    async with open_loopback_server(handle, port=port) as server:
        yield MirrorServer(url=server.url, log=log)
