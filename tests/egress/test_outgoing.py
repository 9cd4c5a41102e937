"""What of a caller's headers reaches the wire, and that a request is exactly the lines it should be."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.egress.outgoing import build_request, encode_fields, is_reserved
from forage.errors import EgressCode, EgressDeniedError

RESERVED = [
    "Host", "host", "HOST", "Connection", "Proxy-Authorization", "proxy-connection", "Proxy-Anything", "Transfer-Encoding",
    "Content-Length", "TE", "Trailer", "Upgrade", "HTTP2-Settings", "Keep-Alive", "Expect",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_fields_that_only_the_guard_sets_are_left_out(name: str) -> None:
    assert is_reserved(name)
    assert encode_fields([(name, "evil"), ("Accept", "*/*")]) == b"Accept: */*\r\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-B: b"),
        ("X-A", "a\nb"),
        ("X-A", "a\rb"),
        ("X-A", "a\x00b"),
        ("X-A", "a\x0bb"),
        ("X-A", "a\x7fb"),
        ("X-A", "\u2028"),
        ("X A", "1"),
        ("X:A", "1"),
        ("", "1"),
        ("X\r\nY", "1"),
        ("X\u00e9", "1"),
        ("Host\r\nX", "a"),
        ("Host", "a\r\nb"),
        ("Content-Length", "1\r\n"),
    ],
)
def test_a_field_that_is_not_one_line_is_refused_reserved_or_not(name: str, value: str) -> None:
    with pytest.raises(EgressDeniedError) as caught:
        encode_fields([("Accept", "*/*"), (name, value)])
    assert caught.value.code is EgressCode.INVALID_HEADER
    assert "evil" not in str(caught.value)


def test_values_are_octets_in_latin_1() -> None:
    assert encode_fields([("X", " caf\xe9\t ")]) == b"X: caf\xe9\r\n"


def test_a_request_without_and_with_a_body() -> None:
    assert build_request("GET", "/a?b", "a.example", b"A: b\r\n", b"") == b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nA: b\r\n\r\n"
    assert build_request("POST", "/", "a.example", b"", b"xy").startswith(
        b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nxy"
    )
    assert b"Content-Length: 0\r\n" in build_request("POST", "/", "a.example", b"", b"")
    assert b"Content-Length: 2\r\n" in build_request("GET", "/", "a.example", b"", b"xy")


@pytest.mark.parametrize(
    ("method", "target", "host"),
    [
        ("GET /", "/", "a"),
        ("G\r\nT", "/", "a"),
        ("", "/", "a"),
        ("GET", "/ HTTP/1.1\r\nX: y", "a"),
        ("GET", "/a b", "a"),
        ("GET", "/\x00", "a"),
        ("GET", "/\xe9", "a"),
        ("GET", "http://a/", "a"),
        ("GET", "*", "a"),
        ("GET", "/", "a\r\nX: y"),
        ("GET", "/", "a b"),
        ("GET", "/", ""),
    ],
)
def test_parts_that_are_not_one_clean_line_are_refused(method: str, target: str, host: str) -> None:
    with pytest.raises(EgressDeniedError):
        build_request(method, target, host, b"", b"")


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=12)), max_size=4), st.binary(max_size=10))
def test_whatever_is_accepted_is_one_request_to_h11(headers: list[tuple[str, str]], body: bytes) -> None:
    try:
        fields = encode_fields(headers)
    except EgressDeniedError:
        return
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(build_request("POST", "/a", "a.example", fields, body))
    request = peer.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target, dict(request.headers)[b"host"]) == (b"POST", b"/a", b"a.example")
    received = b""
    while not isinstance(event := peer.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        received += bytes(event.data)
    assert received == body
    assert peer.next_event() is h11.NEED_DATA or peer.trailing_data == (b"", False)
