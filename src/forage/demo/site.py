"""A web server for the bundled site, on loopback only: HTTP/1.1 with kept connections, as small as that can honestly be.

Owns the listener, the reading of request heads within bounds, and a log of what was asked. It is for the demonstration, the README and
tests; it serves nothing but `forage.demo.content` and is no server for anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus

import attrs
import trio

from forage.demo.content import Answer, DemoPages

__all__ = ["DemoSite", "open_demo_site"]

HOST = "127.0.0.1"
MAX_HEAD_BYTES = 16 * 1024
IDLE_SECONDS = 30.0


@attrs.frozen(kw_only=True)
class DemoSite:
    """The running site. ``origin`` is what a policy opens; ``requests`` grows by one ``METHOD path`` a request."""

    origin: str
    port: int
    requests: list[str] = attrs.field(factory=list, repr=False)


@asynccontextmanager
async def open_demo_site(*, year: int | None = None) -> AsyncIterator[DemoSite]:
    """Serve the site on a free port of 127.0.0.1 for the length of the block; its calendar starts in ``year`` (default: this one)."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        port: int = listener.socket.getsockname()[1]
        site = DemoSite(origin=f"http://{HOST}:{port}", port=port)
        pages = DemoPages(site.origin, year=datetime.now(UTC).year if year is None else year)
        handler = partial(_serve, pages, site.requests, Counter())
        await nursery.start(partial(trio.serve_listeners, handler, [listener]))
        try:
            yield site
        finally:
            nursery.cancel_scope.cancel()


async def _serve(pages: DemoPages, log: list[str], asked: Counter[str], stream: trio.SocketStream) -> None:
    """Answer the requests of one connection, one after another."""
    async with stream:
        try:
            held = b""
            while True:
                with trio.move_on_after(IDLE_SECONDS) as waiting:
                    head, held = await _read_head(stream, held)
                if waiting.cancelled_caught or head is None:
                    return
                await stream.send_all(_respond(pages, log, asked, head))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client went away: a normal end


async def _read_head(stream: trio.SocketStream, held: bytes) -> tuple[bytes | None, bytes]:
    """The next request head and what came after it; None at the end of the connection, or when the head is too large."""
    await trio.lowlevel.checkpoint()  # a client that sends many requests at once must not hold everybody else up
    while b"\r\n\r\n" not in held:
        part = await stream.receive_some()
        if not part or len(held) + len(part) > MAX_HEAD_BYTES:
            return None, b""
        held += part
    head, _, held = held.partition(b"\r\n\r\n")
    return head, held


def _respond(pages: DemoPages, log: list[str], asked: Counter[str], head: bytes) -> bytes:
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    target = rest.rpartition(" ")[0]
    path = target.partition("?")[0]
    log.append(f"{method} {target}")
    if method not in {"GET", "HEAD"}:
        answer = Answer(status=405, headers=(("Allow", "GET, HEAD"),))
    else:
        answer = pages.get(path)
        asked[path] += 1
        if answer.first is not None and asked[path] == 1:
            answer = answer.first
    return _encode(answer, with_body=method != "HEAD")


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (*answer.headers, ("Content-Length", str(len(answer.body))))]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (answer.body if with_body else b"")
