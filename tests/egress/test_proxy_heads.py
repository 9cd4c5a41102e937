"""Heads of the proxy: what it takes, h11 reads the same way; what it writes has one reading."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forage.egress.framing import body_framing
from forage.egress.head import parse_head
from forage.egress.proxy_heads import MalformedRequestError, find_head, parse_request, response_head
from forage.errors import FetchError

PARTS = [
    *(b"GET", b"POST", b"CONNECT", b" ", b"  ", b"\t", b"http://site.test/", b"site.test:443", b"/", b"*", b"\x00", b"\xff", b"\r", b"\n"),
    *(b" HTTP/1.1", b" HTTP/1.0", b" HTTP/1.2", b"\r\n", b"\r\n", b"\r\n", b"Host: x", b"Host:", b"X: y", b"X : y", b" folded", b":"),
    *(b"Content-Length: 3", b"content-length: 03", b"Content-Length: -1", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"),
    *(b"Connection: X", b"Connection: close", b"Proxy-Authorization: x", b"Expect: 100-continue"),
]
HEADS = st.lists(st.sampled_from(PARTS), max_size=14).map(b"".join)
SANE = st.builds(
    lambda line, fields: b"\r\n".join([line, *fields]),
    st.sampled_from([b"GET http://site.test/ HTTP/1.1", b"POST http://site.test/ HTTP/1.0", b"CONNECT site.test:443 HTTP/1.1"]),
    st.lists(st.sampled_from(PARTS[24:]) | st.binary(max_size=12).map(lambda value: b"X: " + value), max_size=5),
)


@given(HEADS | SANE)
@example(b"GET http://site.test/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked")
@example(b"GET http://site.test/ HTTP/1.1\r\nX: \xff")
def test_what_is_taken_is_read_the_same_by_another_parser(start: bytes) -> None:
    raw = start + b"\r\n\r\n"
    try:
        if find_head(raw, 0) != len(raw):
            return  # it ends before
        request = parse_request(raw)
    except MalformedRequestError:
        return
    other = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    # It wants a Host in HTTP/1.1; the proxy does not, as it takes the host from the target.
    lines = raw.split(b"\r\n")
    other.receive_data(b"\r\n".join([lines[0], b"Host: x", *(line for line in lines[1:] if not line.lower().startswith(b"host:"))]))
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target.decode()) == (request.method, request.target)
    received = [(name.lower(), value) for name, value in event.headers]
    for name, value in request.headers:
        assert name.lower() == "host" or (name.lower().encode(), value.encode("latin-1")) in received
        assert not {"\r", "\n", "\0"} & set(name + value)
    chunked = any(name == b"transfer-encoding" for name, _ in received)
    lengths = [int(value) for name, value in received if name == b"content-length"]
    assert (request.framing.kind == "chunked") == chunked
    assert (request.framing.length or 0) == (lengths[0] if lengths else 0)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_head_or_malformed(data: bytes) -> None:
    try:
        end = find_head(data, 0)
        assert end == -1 or data[end - 4 : end] == b"\r\n\r\n"
        parse_request(data)
    except MalformedRequestError:
        pass


@pytest.mark.parametrize("cut", range(1, 30))
def test_end_is_found_wherever_the_head_is_cut(cut: int) -> None:
    raw = b"GET / HTTP/1.1\r\nX: y\r\n\r\nrest"
    assert find_head(raw[:cut], 0) == (24 if cut >= 24 else -1)
    assert find_head(raw, min(cut, 23)) == 24


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                b"X",
                b"Connection",
                b"Content-Length",
                b"Transfer-Encoding",
                b"Alt-Svc",
                b"Proxy-Status",
                b"Set-Cookie",
                b"Trailer",
                b"Upgrade",
            ]
        ),
        st.sampled_from([b"3", b"x", b"chunked", b"close, x", b"", b"\xff", b"a=b"]),
    ),
    max_size=6,
)


@given(HEADERS, st.sampled_from([200, 204, 302, 304, 404]), st.sampled_from(["GET", "HEAD"]))
def test_what_is_written_is_framed_in_one_way(headers: list[tuple[bytes, bytes]], status: int, method: str) -> None:
    lines = [b"HTTP/1.1 %d X" % status, *(name + b": " + value for name, value in headers), b"", b""]
    try:
        head = parse_head(b"\r\n".join(lines))
        framing = body_framing(head, method)
    except FetchError:
        return
    chunked = framing.kind in ("chunked", "close")
    again = parse_head(response_head(head, framing, chunked=chunked))
    passed = body_framing(again, method)
    names = [name.lower() for name, _ in again.headers]
    assert (again.status, again.reason) == (head.status, head.reason)
    assert passed.kind == ("chunked" if chunked else framing.kind)
    assert passed.length == framing.length or framing.kind == "none"
    assert not passed.reusable
    assert names.count(b"content-length") <= 1
    assert names.count(b"connection") == 1
    assert not {b"alt-svc", b"proxy-status", b"upgrade", b"trailer"} & set(names)
    assert (b"transfer-encoding" in names) == chunked
