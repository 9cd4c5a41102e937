"""How the body of a response is framed, and readers that cut it out of the byte stream.

Owns RFC 9112 sections 6 and 7: which of no body, length, chunks or end of connection counts, whether the connection may carry
another exchange, and the bounded chunk reader. Content codings are not its business, I/O neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import attrs

from forage.egress.head import ResponseHead
from forage.errors import FetchError, FetchErrorKind

__all__ = ["BodyReader", "Framing", "body_framing"]

_MAX_LENGTH = 2**63 - 1
_MAX_CHUNK_LINE = 4_096  # size, extensions and line end of one chunk
_MAX_EXTENSIONS = 65_536  # all extensions of one body: they are bytes that no body limit counts
_MAX_TRAILER_BYTES = 16_384
_LENGTH = re.compile(rb"[0-9]{1,32}")
# chunk-size, then spaces that some servers pad with, then extensions that are skipped unread. 16 digits are 64 bits.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(;[\t \x21-\x7e\x80-\xff]*)?")


def _protocol_error(what: str) -> FetchError:
    return FetchError(FetchErrorKind.PROTOCOL, f"the answer is framed wrongly: {what}")


def _incomplete() -> FetchError:
    return FetchError(FetchErrorKind.INCOMPLETE_BODY, "the connection ended before the body did")


class BodyReader(Protocol):
    """Cuts one body out of a stream.

    ``feed`` takes received bytes and answers the body bytes among them; ``done`` turns true with the last one, and ``surplus`` then
    holds what followed the message. ``end`` is told that the peer closed: it raises FetchError (INCOMPLETE_BODY) unless that is
    how this body ends. ``failure`` is what was found wrong behind the bytes just answered: they come first, so that an exchange
    fails in the same way however the stream was cut.
    """

    done: bool
    failure: FetchError | None
    surplus: bytes

    def feed(self, data: bytes, /) -> bytes: ...

    def end(self) -> None: ...


class _NoBody:
    __slots__ = ("done", "failure", "surplus")

    def __init__(self) -> None:
        self.done = True
        self.surplus = b""
        self.failure: FetchError | None = None

    def feed(self, data: bytes, /) -> bytes:
        self.surplus += data
        return b""

    def end(self) -> None:
        return


class _LengthBody:
    __slots__ = ("_left", "done", "failure", "surplus")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.surplus = b""
        self.failure: FetchError | None = None

    def feed(self, data: bytes, /) -> bytes:
        left = self._left - len(data)
        if left > 0:
            self._left = left
            return data
        self.done = True
        if left < 0:
            self.surplus += data[self._left :]
            data = data[: self._left]
        self._left = 0
        return data

    def end(self) -> None:
        if not self.done:
            raise _incomplete()


class _CloseBody:
    __slots__ = ("done", "failure", "surplus")

    def __init__(self) -> None:
        self.done = False
        self.surplus = b""
        self.failure: FetchError | None = None

    def feed(self, data: bytes, /) -> bytes:
        return data

    def end(self) -> None:
        self.done = True


class _ChunkedBody:
    """RFC 9112 7.1, strict about CRLF: a bare LF is where two readers of one stream begin to disagree about chunks."""

    __slots__ = ("_extensions", "_left", "_pending", "_trailer", "done", "failure", "surplus")

    def __init__(self) -> None:
        self._pending = b""  # an unfinished line
        self._left = 0  # bytes of the current chunk still to come, its CRLF included
        self._trailer = -1  # bytes of the trailer section so far; -1 before it
        self._extensions = 0
        self.done = False
        self.surplus = b""
        self.failure: FetchError | None = None

    def feed(self, data: bytes, /) -> bytes:
        if self._pending:
            data = self._pending + data
            self._pending = b""
        out: list[bytes] = []
        try:
            self._cut(data, out)
        except FetchError as exc:
            if not out:
                raise
            self.failure = exc
        return out[0] if len(out) == 1 else b"".join(out)

    def _cut(self, data: bytes, out: list[bytes]) -> None:
        at, size = 0, len(data)
        while at < size and not self.done:
            if self._left:
                at = self._take(data, at, out)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._pending = data[at:]
                self._check_unfinished(self._pending)
                break
            if self._trailer < 0:
                self._begin_chunk(data[at:end])
            else:
                self._trailer_line(data[at:end])
            at = end + 2
        if self.done:
            self.surplus += data[at:]

    def _take(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Move past bytes of the current chunk; its last two must be CRLF."""
        stop = min(len(data), at + self._left)
        body = min(stop - at, self._left - 2)
        if body > 0:
            out.append(data[at : at + body])
            self._left -= body
            at += body
        if at < stop:
            tail = stop - at
            if data[at:stop] != b"\r\n"[2 - self._left : 2 - self._left + tail]:
                raise _protocol_error("a chunk that is longer than it says")
            self._left -= tail
        return stop

    def _begin_chunk(self, line: bytes) -> None:
        match = _CHUNK_LINE.fullmatch(line)
        if match is None or len(line) > _MAX_CHUNK_LINE:
            raise _protocol_error("a chunk size that cannot be read")
        digits = match[1].lstrip(b"0")
        if len(digits) > 15:
            raise _protocol_error("a chunk size beyond any body")
        self._extensions += len(line) - len(match[1])
        if self._extensions > _MAX_EXTENSIONS:
            raise _protocol_error("chunk extensions without end")
        length = int(digits, 16) if digits else 0
        if length == 0:
            self._trailer = 0
        else:
            self._left = length + 2

    def _trailer_line(self, line: bytes) -> None:
        if not line:
            self.done = True
            return
        if b"\n" in line or b"\r" in line:
            raise _protocol_error("a bare line end among the trailers")
        self._trailer += len(line) + 2
        if self._trailer > _MAX_TRAILER_BYTES:
            raise _protocol_error("a trailer section without end")

    def _check_unfinished(self, line: bytes) -> None:
        if len(line) > (_MAX_CHUNK_LINE if self._trailer < 0 else _MAX_TRAILER_BYTES):
            raise _protocol_error("a chunk line without end")
        if b"\n" in line:
            raise _protocol_error("a bare line feed between chunks")

    def end(self) -> None:
        if not self.done:
            raise _incomplete()


@attrs.frozen(kw_only=True)
class Framing:
    """How a body is cut out. ``length`` is what was declared, where that counts; ``codings`` are transfer codings to undo, in the
    order in which they were applied; ``reusable`` says that the connection may carry another exchange after this one."""

    kind: str  # "none" | "length" | "chunked" | "close"
    length: int | None = None
    codings: tuple[bytes, ...] = ()
    reusable: bool = True

    def reader(self) -> BodyReader:
        if self.kind == "length":
            return _LengthBody(self.length or 0)
        if self.kind == "chunked":
            return _ChunkedBody()
        return _CloseBody() if self.kind == "close" else _NoBody()


def body_framing(head: ResponseHead, method: str) -> Framing:
    """The framing of the response to ``method`` (RFC 9112 section 6.3). Raises FetchError (PROTOCOL) where readers could differ."""
    found = head.fields
    lengths = found.get(b"content-length")
    length = _declared_length(lengths) if lengths else None
    reusable = _persists(head, _elements(found.get(b"connection")))
    # identity is obsolete, and means what it says
    codings = tuple(coding for coding in _elements(found.get(b"transfer-encoding")) if coding != b"identity")
    if method == "HEAD" or head.status in (204, 304):
        # A server that declares a body here may also send it, late: it would stand where the next head is expected.
        return Framing(kind="none", reusable=reusable and not length and not codings)
    if codings:
        # A length beside it, or a 1.0 sender, is the shape of response splitting (6.1, 6.3): read by chunks, then close.
        return _transfer_framing(codings, reusable and length is None and head.minor_version > 0)
    if length is not None:
        return Framing(kind="length", length=length, reusable=reusable)
    if head.status == 205:
        return Framing(kind="none", reusable=False)  # has no content (RFC 9110 15.3.6); its end would be waited for in vain
    return Framing(kind="close", reusable=False)


def _elements(values: Sequence[bytes] | None) -> list[bytes]:
    """List elements, lower case, empty ones left out (RFC 9110 5.6.1)."""
    if not values:
        return []
    return [part for value in values for raw in value.lower().split(b",") if (part := raw.strip(b" \t"))]


def _transfer_framing(codings: tuple[bytes, ...], reusable: bool) -> Framing:
    *inner, last = codings
    known = (b"gzip", b"x-gzip", b"deflate")
    if b"chunked" in inner or any(coding not in known for coding in inner) or last not in (*known, b"chunked"):
        raise _protocol_error("a transfer coding that is not known")
    if last == b"chunked":
        return Framing(kind="chunked", codings=tuple(inner), reusable=reusable)
    return Framing(kind="close", codings=codings, reusable=False)


def _declared_length(values: Sequence[bytes]) -> int:
    """The Content-Length. Equal repeats count once; anything else that is not one number is refused (RFC 9112 6.3)."""
    distinct = {part.strip(b" \t") for value in values for part in value.split(b",")}
    if len(distinct) > 1:
        raise _protocol_error("lengths that differ")
    (value,) = distinct
    if _LENGTH.fullmatch(value) is None or int(value) > _MAX_LENGTH:
        raise _protocol_error("a length that is no number")
    return int(value)


def _persists(head: ResponseHead, options: list[bytes]) -> bool:
    if b"close" in options:
        return False
    return head.minor_version > 0 or b"keep-alive" in options
