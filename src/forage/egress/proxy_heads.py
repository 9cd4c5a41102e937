"""Heads as the forward proxy reads and writes them: a client's request, and the answer that goes back to it. Does no I/O.

Owns the grammar that the proxy accepts, which is narrower than RFC 9112: CRLF only, no folds, no blank lines before the request, one
framing. A request that two readers could see differently is refused as a whole; a browser sends none. Owns, too, which fields are between
two neighbours only (RFC 9110 section 7.6.1) and stop here. It judges no URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from forage.egress.framing import Framing
from forage.egress.head import ResponseHead

__all__ = ["MalformedRequestError", "ProxyRequest", "find_head", "parse_request", "response_head"]

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110 5.6.2
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@/?#%\\\[\]]+):([1-9][0-9]{0,4})", re.ASCII)
_LENGTH: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_MOST_FIELDS: Final = 256
_Field: TypeAlias = tuple[bytes, bytes, bytes]
"""The name in lower case, the name and the value as they came."""
# Between a client and the proxy only. Alt-Svc and its kin would send later requests to another place, past the proxy.
_HOP_BY_HOP: Final = frozenset(
    [b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"alt-svc", b"http2-settings"]
)


class MalformedRequestError(Exception):
    """Not a request that this proxy takes; the text says what is wrong, without any of its bytes."""


@attrs.frozen(kw_only=True)
class ProxyRequest:
    """One request head. ``headers`` are those that travel on, octets as latin-1 text; ``framing`` says how its body is cut out."""

    method: str
    target: str
    minor_version: int
    headers: tuple[tuple[str, str], ...]
    framing: Framing
    expects_continue: bool = False

    @property
    def is_connect(self) -> bool:
        return self.method == "CONNECT"

    def connect_url(self) -> str:
        """The origin of a CONNECT as a URL to judge. Raises MalformedRequestError unless the target is exactly ``host:port``.

        Port 443 is https, any other is judged as http: ``ws:`` comes here too.
        """
        found = _AUTHORITY.fullmatch(self.target)
        if found is None or int(found[1]) > 65_535:
            raise MalformedRequestError("a tunnel to something that is not host:port")
        return f"{'https' if found[1] == '443' else 'http'}://{self.target}/"


def find_head(buffer: bytes | bytearray, searched: int) -> int:
    """Where the head ends in ``buffer``, -1 while it is not whole. ``searched`` bytes were looked at before.

    Raises MalformedRequestError at the first byte that no method begins with: TLS and SOCKS greetings, blank lines.
    """
    if buffer and not re.match(_TOKEN, buffer[:1]):
        raise MalformedRequestError("no request line")
    end = buffer.find(b"\r\n\r\n", max(0, searched - 3))
    return end + 4 if end >= 0 else -1


def parse_request(raw: bytes) -> ProxyRequest:
    """The head in ``raw``, from its first byte to the end of its blank line. Raises MalformedRequestError."""
    line, *lines = raw[:-4].split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise MalformedRequestError("a request line that cannot be read")
    if len(lines) > _MOST_FIELDS:
        raise MalformedRequestError(f"more than {_MOST_FIELDS} fields")
    method, target, minor = found.groups()
    fields = _fields(lines)
    minor_version = int(minor)
    framing = _framing(fields, minor_version)
    if method == b"CONNECT" and framing.kind != "none":
        raise MalformedRequestError("a tunnel with a body")  # RFC 9110 9.3.6: what follows would be read as both
    dropped = {*_nominated(fields), *_HOP_BY_HOP}
    return ProxyRequest(
        method=method.decode("ascii"),
        target=target.decode("ascii"),
        minor_version=minor_version,
        headers=tuple(
            (name.decode("ascii"), value.decode("latin-1"))
            for lower, name, value in fields
            if lower not in dropped and not lower.startswith(b"proxy-")
        ),
        framing=framing,
        expects_continue=minor_version > 0 and any(lower == b"expect" for lower, _, _ in fields),
    )


def _fields(lines: Iterable[bytes]) -> list[_Field]:
    fields: list[_Field] = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise MalformedRequestError("a field that is not one line of name and value")
        name, value = found.groups()
        fields.append((name.lower(), name, value.rstrip(b" \t")))
    return fields


def _values(fields: Iterable[_Field], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for lower, _, value in fields if lower == wanted]


def _nominated(fields: Iterable[_Field]) -> Iterator[bytes]:
    """Names that Connection says are for this hop only."""
    return (part.strip(" \t").lower().encode("latin-1") for value in _values(fields, b"connection") for part in value.split(","))


def _framing(fields: Iterable[_Field], minor_version: int) -> Framing:
    """How the body of a request is framed (RFC 9112 section 6), every doubtful case refused: request smuggling lives there."""
    codings, lengths = _values(fields, b"transfer-encoding"), _values(fields, b"content-length")
    if codings:
        if lengths or minor_version == 0 or [coding.lower() for coding in codings] != ["chunked"]:
            raise MalformedRequestError("a body that is framed in two ways, or in none that is known")
        return Framing(kind="chunked")
    if not lengths:
        return Framing(kind="none")
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise MalformedRequestError("a length that is not one number")
    length = int(lengths[0])
    return Framing(kind="length", length=length) if length else Framing(kind="none")


def response_head(head: ResponseHead, framing: Framing, *, chunked: bool) -> bytes:
    """The head for the client: status and fields as received, those of the other hop left out, ``Connection: close`` added.

    A declared length travels on where it frames the body, or where there is none to frame (HEAD, 304). ``chunked`` announces that coding.
    """
    dropped = {*head.tokens(b"connection"), *_HOP_BY_HOP}
    has_length = framing.kind == "length" or (framing.kind == "none" and head.status != 204)
    lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason)]
    length_seen = False
    for name, value in head.headers:
        lower = name.lower()
        if lower in dropped or lower.startswith(b"proxy-"):
            continue
        if lower == b"content-length":
            if not has_length or length_seen:
                continue  # equal repeats are one
            length_seen = True
        lines.append(name + b": " + value)
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    lines += [b"Connection: close", b"", b""]
    return b"\r\n".join(lines)
