"""The request as bytes, and which of a caller's header fields may be in it (egress policy, section 8; pure).

This is the last place before the wire, so it holds for every caller: client, transport, fetch, crawl and proxy. Fields that frame a
message, route it or change the protocol are never taken from outside; a name or value that could end its line is refused before any I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from forage.errors import EgressCode, EgressDeniedError, InvalidPolicyError

__all__ = ["build_request", "encode_fields", "is_reserved"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)  # RFC 9110 5.6.2
# RFC 9110 5.5 allows HTAB, visible characters and obs-text (here octets as latin-1). CR, LF and NUL would split the request; no other
# control belongs there, and a character that is no octet would be encoded differently by different senders.
_VALUE = re.compile(r"[\t \x21-\x7e\x80-\xff]*")
_LINE = re.compile(r"[\x21-\x7e]+")
# Set by the guard alone: request smuggling, protocol upgrades and proxy credentials begin with these.
_RESERVED = frozenset(
    ["host", "connection", "transfer-encoding", "content-length", "te", "trailer", "upgrade", "http2-settings", "keep-alive", "expect"]
)
_WITH_BODY = frozenset(["POST", "PUT", "PATCH"])


def is_reserved(name: str) -> bool:
    """True for a field that only the guard sets."""
    lower = name.lower()
    return lower in _RESERVED or lower.startswith("proxy-")


def encode_fields(headers: Iterable[tuple[str, str]]) -> bytes:
    """The caller's fields as lines, reserved ones left out.

    Values are octets as latin-1 text. Raises EgressDeniedError (INVALID_HEADER) for a name that is no token or a value with a control
    character, reserved or not.
    """
    lines: list[str] = []
    for name, value in headers:
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise EgressDeniedError(EgressCode.INVALID_HEADER, rule="section 8", detail="a header that is not one line of name and value")
        if not is_reserved(name):
            text = value.strip(" \t")
            lines.append(f"{name}: {text}\r\n")
    return "".join(lines).encode("latin-1")


def build_request(method: str, target: str, host_header: str, fields: bytes, body: bytes) -> bytes:
    """One HTTP/1.1 request. Raises EgressDeniedError (INVALID_HEADER, INVALID_URL) where the parts would not be one clean line each."""
    if not isinstance(method, str):
        raise InvalidPolicyError("method", "text", got=method)
    if not isinstance(body, bytes):
        raise InvalidPolicyError("body", "bytes")
    if _TOKEN.fullmatch(method) is None:
        raise EgressDeniedError(EgressCode.INVALID_HEADER, rule="section 8", detail="a method that is no token")
    if _LINE.fullmatch(target) is None or _LINE.fullmatch(host_header) is None or target[0] != "/":
        raise EgressDeniedError(EgressCode.INVALID_URL, rule="U10", detail="a request target that is not one line")
    length = f"Content-Length: {len(body)}\r\n" if body or method in _WITH_BODY else ""
    return f"{method} {target} HTTP/1.1\r\nHost: {host_header}\r\n{length}".encode("ascii") + fields + b"\r\n" + body
