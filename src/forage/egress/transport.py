"""One guarded hop behind the transport interface of httpx, for any library with that interface (httpx, httpx2).

Owns how a request of the library becomes one exchange: its fields and body, its timeouts, the response streamed or whole, and the capture
facts that ride on it. Redirects are ``seam``'s. No HTTP library is imported: the classes here are the first bases of classes that
``client`` (or `forage.egress.seam.bind`) completes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Self

import attrs
import trio

from forage.egress.answers import Resolver
from forage.egress.connector import Dialer
from forage.egress.facts import CaptureFacts
from forage.egress.options import check_bytes, check_seconds
from forage.egress.policy import EgressPolicy
from forage.egress.received import OpenExchange
from forage.egress.rules import JudgedUrl, judge_url
from forage.egress.session import DEFAULT_MAX_BODY_BYTES, EgressSession
from forage.egress.wire import Wire
from forage.errors import EgressCode, EgressUnreachableError, FetchError, InvalidPolicyError, ResponseTooLargeError

__all__ = ["CAPTURE", "BodyCore", "Capture", "TransportCore", "check_timeout", "fields_of", "read_body"]

CAPTURE = "forage.capture"
"""Extension of a response under which its `Capture` is found."""

_CONTENT = "bytes, text, or an asynchronous iterable of bytes: a plain iterator would hold up every other task"
_TAKEN_OUT = frozenset([b"content-encoding", b"content-length"])


class Capture(Mapping[str, Any]):
    """What is known about a response: ``url``, ``headers`` (as received, in wire order), ``warnings`` and the fields of `CaptureFacts`.

    A view: what depends on the body is complete once that was read.
    """

    _names = ("url", "headers", "warnings", *(field.name for field in attrs.fields(CaptureFacts)))

    def __init__(self, opened: OpenExchange) -> None:
        self._opened = opened

    def __getitem__(self, name: str) -> Any:
        if name == "url":
            return self._opened.target.url
        if name == "headers":
            return self._opened.head.headers
        if name == "warnings":
            return self._opened.warnings
        if name in self._names:
            return getattr(self._opened.facts(), name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def check_timeout(given: object) -> None:
    """Raises InvalidPolicyError for what is no mapping of the library's names to seconds."""
    if not isinstance(given, Mapping):
        raise InvalidPolicyError("timeout", "seconds, None or a Timeout of the library", got=given)
    for seconds in given.values():
        if seconds is not None:
            check_seconds("timeout", seconds)


@attrs.frozen
class _Timeouts:
    """Seconds to the first byte of an answer, and between two blocks of it."""

    first: float
    between: float

    @classmethod
    def of(cls, request: Any) -> _Timeouts:
        given = request.extensions.get("timeout") or {}
        check_timeout(given)
        read = given.get("read")
        connect = given.get("connect")
        between = float("inf") if read is None else float(read)
        return cls(float("inf") if connect is None else float(connect) + between, between)


class BodyCore:
    """A streamed body: decoded pieces as they come. First base of a subclass of the library's AsyncByteStream."""

    library: ClassVar[ModuleType]

    def __init__(self, opened: OpenExchange, request: Any, response: Any = None) -> None:
        self._opened = opened
        self._request = request
        self._timeouts = _Timeouts.of(request)
        self._begun = trio.current_time()

    def __aiter__(self) -> Self:  # no generator: one that is left early would be finished at some later time
        return self

    async def __anext__(self) -> bytes:
        piece: bytes = await _timed(self._opened.piece, self._timeouts.between, self.library, self._request)
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._opened.close()


async def _timed(step: Any, seconds: float, library: ModuleType, request: Any) -> Any:
    with trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + seconds
        return await step()
    raise library.ReadTimeout("nothing arrived in time", request=request)


class TransportCore:
    """First base of a subclass of the library's AsyncBaseTransport; see `GuardedTransport`."""

    library: ClassVar[ModuleType]
    body_class: ClassVar[type[BodyCore]]

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: Resolver | None = None,
        dialer: Dialer | None = None,
        wire: Wire | None = None,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        check_bytes("max_body_bytes", max_body_bytes)
        self.session = EgressSession(policy, resolver=resolver, dialer=dialer, wire=wire)
        self.max_body_bytes = max_body_bytes
        self._filter = _WithoutQuery(self.library)
        logging.getLogger(self.library.__name__).addFilter(self._filter)

    async def handle_async_request(self, request: Any) -> Any:
        """One hop. The response is streamed: decoded, without Content-Encoding and Content-Length, the received list in its capture."""
        body = await read_body(request, self.max_body_bytes)
        target = judge_url(str(request.url), self.session.policy)
        opened = await self.begin(request, target, fields_of(request.headers), body)
        return self.streamed(opened, request)

    async def begin(self, request: Any, target: JudgedUrl, headers: Sequence[tuple[str, str]], body: bytes) -> OpenExchange:
        """The exchange for one hop. A failure before a head is CONNECT_FAILED: error kinds must not map the inside of a network."""
        timeouts = _Timeouts.of(request)
        with trio.CancelScope() as scope:
            scope.deadline = trio.current_time() + timeouts.first

            def moved(_: int) -> None:
                scope.deadline = trio.current_time() + timeouts.between

            try:
                return await self.session.begin(
                    target, method=request.method, headers=headers, body=body, max_body_bytes=self.max_body_bytes, on_bytes=moved
                )
            except FetchError as exc:
                raise EgressUnreachableError(EgressCode.CONNECT_FAILED, target.host, rule="section 6") from exc
        raise self.library.ReadTimeout("no answer in time", request=request)

    def streamed(self, opened: OpenExchange, request: Any) -> Any:
        """The response with its body still to be read; closing it ends the exchange."""
        return self.library.Response(
            opened.head.status,
            headers=[(name, value) for name, value in opened.head.headers if name.lower() not in _TAKEN_OUT],
            stream=self.body_class(opened, request),
            request=request,
            extensions=extensions_of(opened),
        )

    async def whole(self, opened: OpenExchange, request: Any) -> Any:
        """The response with its body read. Its headers are those received: the library must not see them while it takes the body in,
        or it would decode again."""
        between = _Timeouts.of(request).between
        pieces: list[bytes] = []
        while piece := await _timed(opened.piece, between, self.library, request):
            pieces.append(piece)
        return self.bodied(opened, request, b"".join(pieces))

    def bodied(self, opened: OpenExchange, request: Any, body: bytes) -> Any:
        response = self.library.Response(opened.head.status, content=body, request=request, extensions=extensions_of(opened))
        response.headers = self.library.Headers(list(opened.head.headers))
        return response

    async def aclose(self) -> None:
        logging.getLogger(self.library.__name__).removeFilter(self._filter)
        await self.session.__aexit__(None, None, None)


def extensions_of(opened: OpenExchange) -> dict[str, Any]:
    """What the library reads, and the capture."""
    return {
        "http_version": f"HTTP/{opened.head.http_version}".encode("ascii"),
        "reason_phrase": opened.head.reason,
        CAPTURE: Capture(opened),
    }


def fields_of(headers: Any) -> tuple[tuple[str, str], ...]:
    """The library's headers as octets in latin-1 text; the session leaves out what only the guard sets."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw)


async def read_body(request: Any, limit: int) -> bytes:
    """The whole body of a request, at most ``limit`` bytes: a redirect may have to send it again.

    Raises ResponseTooLargeError; InvalidPolicyError for a body that cannot be read on trio, such as a plain iterator.
    """
    if not hasattr(request.stream, "__aiter__"):
        raise InvalidPolicyError("content", _CONTENT)
    chunks: list[bytes] = []
    size = 0
    stream = aiter(request.stream)
    try:
        async for chunk in stream:
            if not isinstance(chunk, bytes):
                raise InvalidPolicyError("content", _CONTENT)
            size += len(chunk)
            if size > limit:
                raise ResponseTooLargeError(limit)
            chunks.append(chunk)
    finally:
        if hasattr(stream, "aclose"):  # a generator
            await stream.aclose()
    return b"".join(chunks)


class _WithoutQuery(logging.Filter):
    """Takes query and fragment out of URLs that the library logs: they hold tokens, and its INFO line prints them whole."""

    def __init__(self, library: ModuleType) -> None:
        super().__init__()
        self._url_class = library.URL

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._shown(value) for value in record.args)
        return True

    def _shown(self, value: object) -> object:
        return str(value).partition("?")[0].partition("#")[0] if isinstance(value, self._url_class) else value
