"""Heads: where they end, what may be normalised, what is refused, and agreement with h11 on everything both accept."""

from __future__ import annotations

import time

import h11
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.egress.head import MAX_HEAD_BYTES, MAX_HEAD_FIELDS, HeadReader, ResponseHead, _feed, _feed_normalised, parse_head
from forage.errors import FetchError, FetchErrorKind

OK = b"HTTP/1.1 200 OK\r\n"


def read(data: bytes) -> tuple[bytes, bytes]:
    reader = HeadReader()
    raw = reader.feed(data)
    assert raw is not None
    return raw, reader.rest


def parse(data: bytes) -> ResponseHead:
    return parse_head(read(data)[0])


def refused(data: bytes) -> None:
    with pytest.raises(FetchError) as caught:
        parse(data)
    assert caught.value.kind is FetchErrorKind.PROTOCOL


def test_status_fields_and_raw_bytes() -> None:
    data = b"HTTP/1.1 404 Not Found\r\nContent-Type:text/html\r\nX-A: 1\r\nx-a:  2 \t\r\n\r\n"
    head = parse(data + b"body")
    assert (head.status, head.reason, head.http_version) == (404, b"Not Found", "1.1")
    assert head.headers == ((b"Content-Type", b"text/html"), (b"X-A", b"1"), (b"x-a", b"2"))
    assert head.raw == data
    assert list(head.values(b"x-a")) == [b"1", b"2"]


def test_what_follows_the_head_is_left() -> None:
    assert read(OK + b"\r\nbody\r\n\r\n") == (OK + b"\r\n", b"body\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"HTTP/1.1 200 OK\nA: 1\nB: 2\n\n", [(b"A", b"1"), (b"B", b"2")]),
        (b"HTTP/1.1 200 OK\r\nA: 1\nB: 2\r\n\n", [(b"A", b"1"), (b"B", b"2")]),
        (b"\r\n\r\n" + OK + b"A: 1\r\n\r\n", [(b"A", b"1")]),
        (b"\n" + OK + b"A: 1\r\n\r\n", [(b"A", b"1")]),
        (OK + b"A: 1\r\n  folded\r\n\tagain\r\nB: 2\r\n\r\n", [(b"A", b"1 folded again"), (b"B", b"2")]),
        (OK + b"A: 1\n more\n\n", [(b"A", b"1 more")]),
        (OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\n", [(b"Content-Length", b"5"), (b"content-length", b"5")]),
        (OK + b"Content-Length: 5, 5\r\n\r\n", [(b"Content-Length", b"5, 5")]),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]),
        (OK + b"A: caf\xe9\r\nB: \xc3\xa9\r\n\r\n", [(b"A", b"caf\xe9"), (b"B", b"\xc3\xa9")]),
        (OK + b"A:\r\nB: \r\n\r\n", [(b"A", b""), (b"B", b"")]),
        (OK + b"A: a\x01b\x7fc\r\n\r\n", [(b"A", b"a\x01b\x7fc")]),
        (b"HTTP/1.2 200 OK\r\nA: 1\r\n\r\n", [(b"A", b"1")]),
        (OK + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", [(b"Connection", b"Upgrade"), (b"Upgrade", b"h2c")]),
        (
            OK + b"F: 1\r\nContent-Length: 5\r\nContent-Length: 5\r\nF: 2\r\n\r\n",
            [(b"F", b"1"), (b"Content-Length", b"5"), (b"Content-Length", b"5"), (b"F", b"2")],
        ),
    ],
)
def test_what_a_reader_may_normalise(data: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    head = parse(data)
    assert list(head.headers) == headers
    assert head.raw == data


@pytest.mark.parametrize(
    "status", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK", b"HTTP/1.0 999 Request denied", b"HTTP/1.1 200 \xe9"]
)
def test_status_lines_that_are_read(status: bytes) -> None:
    head = parse(status + b"\r\n\r\n")
    assert head.status == int(status[9:12])


def test_a_protocol_switch_is_a_head_like_any_other() -> None:
    assert parse(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").status == 101


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1\t200 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.10 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 a\x00b\r\n\r\n",
        b"HTTP/1.1 200 a\rb\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"<html>\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b": no name\r\n\r\n",
        OK + b"A B: 1\r\n\r\n",
        OK + b"A : 1\r\n\r\n",
        OK + b"A\t: 1\r\n\r\n",
        OK + b"A(: 1\r\n\r\n",
        OK + b"\xe9: 1\r\n\r\n",
        OK + b"A: a\x00b\r\n\r\n",
        OK + b"A: a\rb\r\n\r\n",
        OK + b" A: 1\r\n\r\n",
        OK + b"\tA: 1\r\nB: 2\r\n\r\n",
        OK + b"A: 1\r\r\n\r\n",
        OK + b"Content-Length : 5\r\n\r\n",
    ],
)
def test_what_is_refused(data: bytes) -> None:
    refused(data)


def test_nul_is_let_through_in_location_for_the_judgement_of_redirects() -> None:
    assert list(parse(b"HTTP/1.1 302 F\r\nLocation: /x\x00y\r\n\r\n").values(b"location")) == [b"/x\x00y"]


def test_a_head_larger_than_the_limit_is_refused_before_it_ends() -> None:
    reader = HeadReader()
    assert reader.feed(OK + b"A: ") is None
    for _ in range(15):
        assert reader.feed(b"a" * 4096) is None
    with pytest.raises(FetchError):
        reader.feed(b"a" * 4096)


def test_a_head_of_exactly_the_limit_is_read() -> None:
    fixed = len(OK + b"A: \r\n\r\n")
    data = OK + b"A: " + b"a" * (MAX_HEAD_BYTES - fixed) + b"\r\n\r\n"
    assert len(read(data)[0]) == MAX_HEAD_BYTES
    refused(OK + b"A: " + b"a" * (MAX_HEAD_BYTES - fixed + 1) + b"\r\n\r\n")


def test_too_many_fields_are_refused() -> None:
    assert len(parse(OK + b"A: 1\r\n" * MAX_HEAD_FIELDS + b"\r\n").headers) == MAX_HEAD_FIELDS
    refused(OK + b"A: 1\r\n" * (MAX_HEAD_FIELDS + 1) + b"\r\n")


def test_blank_lines_without_end_are_refused() -> None:
    with pytest.raises(FetchError):
        HeadReader().feed(b"\r\n" * 6)


@pytest.mark.parametrize("data", [b"\r\n\nHTTP/1.1 200 OK\r\nA: 1\n B\r\n\r\nrest", OK + b"A: 1\r\n\r\n\r\nrest", b"HTTP/1.0 200\n\nrest"])
def test_the_head_is_the_same_however_it_is_cut(data: bytes) -> None:
    whole = read(data)
    for cut in range(len(data) + 1):
        for second in (cut, min(cut + 1, len(data))):
            reader = HeadReader()
            found = None
            rest = b""
            for part in (data[:cut], data[cut:second], data[second:]):
                if found is not None:
                    rest += part
                elif part:
                    found = reader.feed(part)
            assert (found, reader.rest + rest) == whole


@pytest.mark.parametrize("start", [b"X", b"HTTQ", b"HTTP/2", b"\r\nSSH"])
def test_another_protocol_is_known_by_its_first_bytes(start: bytes) -> None:
    with pytest.raises(FetchError):
        HeadReader().feed(start)


def test_a_head_that_comes_byte_by_byte_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        data = OK + b"A: " + b"a" * size
        reader = HeadReader()
        begun = time.process_time()
        for at in range(len(data)):
            reader.feed(data[at : at + 1])
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(60_000) < 12 * seconds(15_000)


TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12).map(str.encode)
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30).map(
    lambda text: text.encode("latin-1").strip(b" \t\r\n\x0b\x0c\x85\xa0")
)


@given(st.lists(st.tuples(TOKEN, VALUE), max_size=8), st.integers(200, 999), VALUE, st.sampled_from([b"\r\n", b"\n"]), st.booleans())
def test_agrees_with_h11(fields: list[tuple[bytes, bytes]], status: int, reason: bytes, newline: bytes, fold: bool) -> None:
    """On plain fields, in any line ends, folded or not: what h11 reads is what is read here."""
    fields = [(name, value) for name, value in fields if name.lower() not in (b"content-length", b"transfer-encoding", b"connection")]
    lines = [b"HTTP/1.1 %d " % status + reason]
    for name, value in fields:
        lines.append(name + b": " + value)
        if fold:
            lines.append(b" \t folded")
    data = newline.join(lines) + newline + newline
    head = parse(data)
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(data)
    event = peer.next_event()
    assert isinstance(event, h11.Response)
    assert head.status == event.status_code
    assert head.reason == bytes(event.reason).rstrip(b" \t")
    assert [(name.lower(), value) for name, value in head.headers] == [(bytes(name), bytes(value)) for name, value in event.headers]


def outcome(data: bytes) -> object:
    """What became of the bytes: a parsed head, the kind of a refusal, or None while the head has not ended."""
    reader = HeadReader()
    try:
        raw = reader.feed(data)
        return None if raw is None else parse_head(raw)
    except FetchError as exc:
        return exc.kind


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_head_or_a_protocol_error(tail: bytes) -> None:
    for data in (tail + b"\r\n\r\n", OK + tail + b"\r\n\r\n", b"HTTP/1." + tail + b"\n\n"):
        found = outcome(data)
        if isinstance(found, ResponseHead):
            assert 100 <= found.status <= 999
            assert not any(set(name + value) & set(b"\r\n") for name, value in found.headers)
        else:
            assert found in (None, FetchErrorKind.PROTOCOL)


LINE = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"A: 1", b"Content-Length: 5", b"content-length: 5, 5", b"Transfer-Encoding: chunked", b" folded", b"B:", b"A : 1", b"x: \x01"]
    ),
)


@given(st.lists(LINE, max_size=6), st.sampled_from([b"\r\n", b"\n"]))
def test_the_parser_sees_the_same_with_and_without_normalisation(lines: list[bytes], newline: bytes) -> None:
    """What llhttp reads at once is what it reads after normalisation: no head has two meanings."""
    data = OK + b"".join(line + newline for line in lines) + newline
    try:
        at_once = _feed(data)
    except httptools.HttpParserError:
        return
    raw, _ = read(data)
    if raw == data:
        assert _feed_normalised(data) == at_once
