"""The head of an HTTP/1.x response: where it ends, what may be normalised in it, and its fields.

Owns the search for the end of a head within limits, and the step from raw bytes to status and fields. It does no I/O and does not
decide how a body is framed (``framing``). Format: RFC 9112 sections 2 to 5, RFC 9110 section 5.5.

The raw bytes are kept as evidence. A reader may normalise a few things, and only these are: blank lines before the status line, a
bare LF as line end, folded lines, several equal lengths, control characters within a value, a minor version above 1. llhttp then parses
what is left; whatever it refuses after that is a protocol error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs
import httptools

from forage.errors import FetchError, FetchErrorKind

__all__ = ["MAX_HEAD_BYTES", "MAX_HEAD_FIELDS", "HeadReader", "ResponseHead", "parse_head"]

MAX_HEAD_BYTES = 65_536
"""Status line and fields together. The largest common server limit is 32 KiB; more is a defect or an attack on memory."""

MAX_HEAD_FIELDS = 512
"""Fields in one head; 64 KiB could hold 16,000 of them, each an object."""

_MAX_BLANK_BYTES = 8  # RFC 9112 2.2 asks servers to skip one blank line; broken pages of CGI scripts send a few

# RFC 9112 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]. The last space is missing in practice.
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([\t \x21-\x7e\x80-\xff]*))?\r?\n")
_FOLD = re.compile(rb"[ \t]*\r\n[ \t]+")
_BARE_LF = re.compile(rb"(?<!\r)\n")
# Fields by which llhttp frames the body. Framing is not its task here, so it reads them under another name.
_FRAMING_NAMES = frozenset([b"content-length", b"transfer-encoding"])
# RFC 9110 5.5: a recipient may retain control characters other than CR, LF and NUL. NUL is let through in Location alone, where the
# judgement of the redirect refuses it by name.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _protocol_error(what: str) -> FetchError:
    return FetchError(FetchErrorKind.PROTOCOL, f"the answer is not HTTP/1.1: {what}")


@attrs.frozen(kw_only=True)
class ResponseHead:
    """Status and fields of one response. ``raw`` is the head as received, from its first byte to the end of its blank line."""

    status: int
    reason: bytes
    minor_version: int
    headers: tuple[tuple[bytes, bytes], ...]
    raw: bytes
    fields: Mapping[bytes, Sequence[bytes]] = attrs.field(init=False, eq=False, repr=False)
    """The values of each field in wire order, by its name in lower case."""

    @fields.default
    def _by_name(self) -> Mapping[bytes, Sequence[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            found.setdefault(name.lower(), []).append(value)
        return found

    @property
    def http_version(self) -> str:
        """``1.0`` or ``1.1``; a higher minor version reads as 1.1 (RFC 9110 section 2.5)."""
        return "1.0" if self.minor_version == 0 else "1.1"

    def values(self, name: bytes) -> Iterator[bytes]:
        """Values of the fields called ``name`` (lower case), in wire order."""
        return iter(self.fields.get(name, ()))

    def tokens(self, name: bytes) -> list[bytes]:
        """The comma-separated elements of all fields called ``name``, lower case, empty ones left out (RFC 9110 5.6.1)."""
        return [part for value in self.values(name) for raw in value.lower().split(b",") if (part := raw.strip(b" \t"))]


class HeadReader:
    """Collects bytes until a head is whole.

    ``feed`` answers the raw head once its blank line was seen and leaves what follows in ``rest``; until then None. Raises
    FetchError (PROTOCOL) as soon as the bytes cannot be a head of at most MAX_HEAD_BYTES: the first bytes are compared early so that
    another protocol's greeting ends the exchange at once.
    """

    __slots__ = ("_buffer", "_searched", "rest")

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self._searched = 0
        self.rest = b""

    @property
    def start(self) -> bytes:
        """The first bytes, as far as they came, of a head that is not whole yet."""
        return bytes(self._buffer[:16])

    def feed(self, data: bytes) -> bytes | None:
        if not self._buffer:
            self._buffer = data  # the usual case: the head is whole in the first block
        else:
            if not isinstance(self._buffer, bytearray):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
        buffer = self._buffer
        if buffer[:7] != b"HTTP/1.":
            self._check_start(buffer)
        end = _end_of_head(buffer, self._searched)
        if end > MAX_HEAD_BYTES or (end < 0 and len(buffer) > MAX_HEAD_BYTES):
            raise _protocol_error(f"its head is larger than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            self._searched = max(self._searched, len(buffer) - 3)
            return None
        self.rest = bytes(buffer[end:])
        return bytes(buffer[:end])

    def _check_start(self, buffer: bytes | bytearray) -> None:
        start = bytes(buffer[: _MAX_BLANK_BYTES + 8]).lstrip(b"\r\n")
        blank = min(len(buffer), _MAX_BLANK_BYTES + 8) - len(start)
        if blank > _MAX_BLANK_BYTES:
            raise _protocol_error("blank lines in place of a status line")
        if not b"HTTP/1.".startswith(start[:7]) and not start.startswith(b"HTTP/1."):
            raise _protocol_error("no status line")
        self._searched = max(self._searched, blank)  # a blank line before the status line is not the end of the head


def _end_of_head(buffer: bytes | bytearray, start: int) -> int:
    """Index behind the first blank line at or after ``start``, or -1. Lines may end in CRLF or LF."""
    crlf = buffer.find(b"\n\r\n", start)
    bare = buffer.find(b"\n\n", start, len(buffer) if crlf < 0 else crlf + 1)
    if bare >= 0:
        return bare + 2
    return crlf + 3 if crlf >= 0 else -1


class _Fields:
    """Receives llhttp's callbacks."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.strip(b" \t")))


def parse_head(raw: bytes) -> ResponseHead:
    """The head in ``raw``, which ends with its blank line (as ``HeadReader`` cuts it). Raises FetchError (PROTOCOL)."""
    line = _STATUS_LINE.match(raw.lstrip(b"\r\n") if raw[:1] in b"\r\n" else raw)
    if line is None:
        raise _protocol_error("a status line that cannot be read")
    minor, status, reason = line.groups(b"")
    headers = _read_fields(raw, status)
    if len(headers) > MAX_HEAD_FIELDS:
        raise _protocol_error(f"its head has more than {MAX_HEAD_FIELDS} fields")
    return ResponseHead(status=int(status), reason=reason.rstrip(b" \t"), minor_version=int(minor != b"0"), headers=tuple(headers), raw=raw)


def _read_fields(raw: bytes, status: bytes) -> list[tuple[bytes, bytes]]:
    try:
        if status != b"101":  # the parser would switch protocols; nobody here asked for that
            try:
                return _feed(raw)
            except httptools.HttpParserError:
                pass  # something that may be normalised, or an error that comes again below
        return _feed_normalised(raw)
    except httptools.HttpParserError as exc:
        raise _protocol_error("a head that breaks the grammar") from exc


def _feed(head: bytes) -> list[tuple[bytes, bytes]]:
    fields = _Fields()
    httptools.HttpResponseParser(fields).feed_data(head)
    return fields.headers


def _feed_normalised(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Parse the head as strict CRLF lines without folds, under a plain status line and with the framing fields renamed.

    The status line was judged by our own expression; llhttp would take 101 for an upgrade and refuse HTTP/1.2. What was hidden from it
    is put back in its place: each line is one field after unfolding.
    """
    _, _, fields = _BARE_LF.sub(b"\r\n", raw.lstrip(b"\r\n")).partition(b"\r\n")
    if fields[:1] in (b" ", b"\t"):
        # RFC 9112 2.2: whitespace before the first field could hide a field from one reader and show it to another.
        raise _protocol_error("white space between status line and fields")
    lines = _FOLD.sub(b" ", fields).split(b"\r\n")[:-2]
    hidden: dict[int, tuple[bytes, bytes]] = {}
    for place, line in enumerate(lines):
        name, colon, value = line.partition(b":")
        if colon and (name.lower() in _FRAMING_NAMES or _CONTROL.search(value)):
            hidden[place] = (name, value.strip(b" \t"))
            lines[place] = (b"F" if name.lower() in _FRAMING_NAMES else name) + b":" + _CONTROL.sub(b"?", value)
            if b"\x00" in value and name.lower() != b"location":
                raise _protocol_error("a NUL in a field")
    found = _feed(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]))
    if len(found) != len(lines):
        raise _protocol_error("a head that breaks the grammar")
    for place, field in hidden.items():
        found[place] = field
    return found
