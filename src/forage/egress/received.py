"""One answer being read: decoded pieces, limits and facts.

Owns `OpenExchange`, an answer whose head is here and whose body is still to come, and `Received`, the whole of it. Limits hold for the body
as declared, as received and as it leaves each coding. Which connection it comes from, and where that goes afterwards, is the session's
affair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import attrs
import trio

from forage.egress.answers import DnsAnswers
from forage.egress.channels import Channel
from forage.egress.codings import BodyDecoder
from forage.egress.facts import CaptureFacts, TlsFacts
from forage.egress.rules import JudgedUrl
from forage.egress.wire import HttpExchange
from forage.errors import FetchError, ResponseTooLargeError

__all__ = ["Connection", "OpenExchange", "Received"]

_STEPS_PER_CHECKPOINT = 16
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_REDIRECT_BODY = 65_536  # bytes of a redirect's body that are read, and dropped, to keep the connection
_REDIRECT_SECONDS = 0.25  # how long to wait for them: about what a new TLS connection would cost


@attrs.frozen(kw_only=True)
class Received:
    """One whole answer. ``headers`` are name and value as received, in wire order; ``body`` is free of transfer and content codings.

    ``warnings`` are codes: content-encoding-unknown, content-encoding-mismatch, content-encoding-trailing.
    """

    url: str
    status: int
    reason: str
    http_version: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = attrs.field(repr=False)
    warnings: tuple[str, ...] = ()
    facts: CaptureFacts = attrs.field(repr=False)

    def header(self, name: str) -> str | None:
        """The values of a field as latin-1 text, joined by ", " (RFC 9110 5.3); None when it is absent."""
        wanted = name.lower().encode("latin-1", "replace")
        values = [value for key, value in self.headers if key.lower() == wanted]
        return b", ".join(values).decode("latin-1") if values else None


@attrs.define(kw_only=True, eq=False)
class Connection:
    """A connection of a session. ``lane`` is what it may be used for: scheme, host, port and pinned address."""

    channel: Channel
    lane: tuple[str, str, int, str]
    tried: tuple[str, ...]
    tls: TlsFacts | None
    used: bool = False
    idle_since: float = 0.0


class OpenExchange:
    """An answer whose head is here and whose body is still to be read. Made and closed by the session.

    ``piece`` gives the body bit by bit, or ``read`` all of it. Errors carry the status. Leaving the body unread closes the connection.
    """

    def __init__(
        self,
        *,
        target: JudgedUrl,
        connection: Connection,
        exchange: HttpExchange,
        answers: DnsAnswers | None,
        timings: dict[str, float],
        limit: int,
        decode: bool,
        release: Callable[[Connection], None],
    ) -> None:
        self.target = target
        self.head = exchange.head
        self._connection = connection
        self._exchange = exchange
        self._answers = answers
        self._timings = timings
        self._limit = limit
        self._decode = decode
        self._release = release
        self._reused = connection.used
        self._encoded_bytes = 0
        self._digest = hashlib.sha256()
        self._begun = trio.current_time()
        self._transfer: BodyDecoder | None = None
        self._content: BodyDecoder | None = None
        self._plain = False
        self._prepared = False
        self._pending: Iterator[bytes] = iter(())
        self._ended = False
        self._closed = False
        self._steps = 0
        connection.used = True

    @property
    def is_redirect(self) -> bool:
        """True for a status that redirects, with a Location that is not blank: its body is dropped, by the policy's section 7."""
        return self.head.status in _REDIRECTS and any(self.head.values(b"location"))

    @property
    def is_ready(self) -> bool:
        """True when bytes of the body, or its end, came with the head: the next piece will not be long in coming."""
        return self._exchange.has_rest

    @property
    def warnings(self) -> tuple[str, ...]:
        """Codes so far; complete once the body was read."""
        return () if self._content is None else tuple(self._content.warnings)

    async def piece(self) -> bytes:
        """The next bytes of the decoded body, empty at its end.

        Raises FetchError (INCOMPLETE_BODY, PROTOCOL, DECODE_ERROR) or ResponseTooLargeError; the connection is then not used again.
        """
        try:
            return await self._piece()
        except FetchError as exc:
            exc.status = self.head.status
            raise

    async def read(self) -> Received:
        """The whole answer. The body of a redirect is left out: it is dropped, and nobody waits for it. Raises as `piece`."""
        return self._received(await self.read_body())

    async def read_body(self) -> bytes:
        """The body of `read`, for callers that take the rest from here: ``head``, ``warnings``, ``facts``."""
        if self.is_redirect:
            await self.drain()
            return b""
        pieces: list[bytes] = []
        try:
            while piece := await self._piece():
                pieces.append(piece)
        except FetchError as exc:
            exc.status = self.head.status
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def drain(self) -> None:
        """Read and drop a small rest of the body so that the connection can be kept; give up soon and quietly."""
        dropped = 0
        with trio.move_on_after(_REDIRECT_SECONDS):
            try:
                while dropped <= _REDIRECT_BODY:
                    piece = await self._exchange.receive_body()
                    if not piece:
                        self._end()
                        return
                    dropped += len(piece)
            except FetchError:
                return

    async def _piece(self) -> bytes:
        if not self._prepared:
            self._prepare()
        while True:
            for piece in self._pending:
                await self._breathe()
                if piece:
                    return piece
            if self._ended:
                return b""
            data = await self._exchange.receive_body()
            if self._plain:
                self._count(data)
                if not data:
                    self._end()
                return data
            self._pending = self._decoded(data) if data else self._last_pieces()

    async def _breathe(self) -> None:
        """Let others run now and then: a small body may unfold into many pieces, empty ones too, without any wait for the network."""
        self._steps += 1
        if self._steps % _STEPS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()

    def _prepare(self) -> None:
        framing, head = self._exchange.framing, self.head
        self._prepared = True
        if framing.length is not None and framing.length > self._limit:
            raise ResponseTooLargeError(self._limit)
        if framing.codings:
            self._transfer = BodyDecoder(list(framing.codings), self._limit)
        if self._decode:
            codings = head.tokens(b"content-encoding")
            if codings:
                self._content = BodyDecoder(codings, self._limit)
        self._plain = self._transfer is None and (self._content is None or self._content.idle)

    def _decoded(self, data: bytes) -> Iterator[bytes]:
        if self._transfer is None:
            yield from self._content_pieces(data)
            return
        for piece in self._transfer.feed(data):
            yield from self._content_pieces(piece)
            yield b""  # a step of the transfer coding, whatever the content coding made of it

    def _count(self, data: bytes) -> None:
        self._encoded_bytes += len(data)
        if self._encoded_bytes > self._limit:
            raise ResponseTooLargeError(self._limit)
        self._digest.update(data)

    def _content_pieces(self, data: bytes) -> Iterator[bytes]:
        self._count(data)
        if self._content is None:
            yield data
        else:
            yield from self._content.feed(data)

    def _last_pieces(self) -> Iterator[bytes]:
        if self._transfer is not None:
            for piece in self._transfer.finish():
                yield from self._content_pieces(piece)
        if self._content is not None:
            yield from self._content.finish()
        self._end()

    def _end(self) -> None:
        """The body is complete: note it, and give the connection back."""
        self._ended = True
        self._timings["body"] = trio.current_time() - self._begun
        if not self._closed and self._exchange.reusable:
            self._closed = True
            self._release(self._connection)

    def close(self) -> None:
        """Close the connection unless it was given back. Idempotent."""
        if not self._closed:
            self._closed = True
            self._connection.channel.close()

    def facts(self) -> CaptureFacts:
        """What is known by now."""
        answers, connection = self._answers, self._connection
        return CaptureFacts(
            answers=() if answers is None else answers.addresses,
            ttl=None if answers is None else answers.ttl,
            resolver=None if answers is None else answers.server,
            tried=() if self._reused else connection.tried,
            connected=connection.lane[3],
            tls=connection.tls,
            reused=self._reused,
            timings=self._timings,
            head=self.head.raw,
            encoded_bytes=self._encoded_bytes,
            encoded_sha256=self._digest.hexdigest() if self._ended else "",
        )

    def _received(self, body: bytes) -> Received:
        head = self.head
        return Received(
            url=self.target.url,
            status=head.status,
            reason=head.reason.decode("latin-1"),
            http_version=head.http_version,
            headers=head.headers,
            body=body,
            warnings=self.warnings,
            facts=self.facts(),
        )
