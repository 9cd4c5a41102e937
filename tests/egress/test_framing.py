"""Where a body ends, what is refused because two readers could differ, and when a connection may be used again."""

from __future__ import annotations

import time
from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.egress.framing import BodyReader, Framing, body_framing
from forage.egress.head import parse_head
from forage.errors import FetchError, FetchErrorKind


def framing(*fields: str, status: int = 200, method: str = "GET", version: str = "1.1") -> Framing:
    lines = "".join(f"{field}\r\n" for field in fields)
    return body_framing(parse_head(f"HTTP/{version} {status} X\r\n{lines}\r\n".encode("latin-1")), method)


def read(reader: BodyReader, data: bytes, *, end: bool = True) -> bytes:
    body = reader.feed(data)
    if end:
        reader.end()
    return body


@pytest.mark.parametrize(
    ("fields", "kind", "length"),
    [
        (["Content-Length: 5"], "length", 5),
        (["Content-Length: 0"], "length", 0),
        (["Content-Length: 0005"], "length", 5),
        (["Content-Length: 5", "Content-Length: 5"], "length", 5),
        (["Content-Length: 5, 5"], "length", 5),
        (["Transfer-Encoding: chunked"], "chunked", None),
        (["Transfer-Encoding: Chunked"], "chunked", None),
        (["Transfer-Encoding: gzip, chunked"], "chunked", None),
        (["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], "chunked", None),
        (["Transfer-Encoding: gzip"], "close", None),
        (["Transfer-Encoding: identity", "Content-Length: 5"], "length", 5),
        (["Transfer-Encoding: identity"], "close", None),
        (["Content-Length: 9", "Transfer-Encoding: chunked"], "chunked", None),
        ([], "close", None),
    ],
)
def test_which_framing_counts(fields: list[str], kind: str, length: int | None) -> None:
    found = framing(*fields)
    assert (found.kind, found.length) == (kind, length)


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: -1"],
        ["Content-Length: +5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5,"],
        ["Content-Length: "],
        ["Content-Length: \u0665".encode().decode("latin-1")],
        ["Content-Length: 9223372036854775808"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked;q=1"],
        ["Transfer-Encoding: br, chunked"],
    ],
)
def test_framing_that_readers_could_differ_about_is_refused(fields: list[str]) -> None:
    with pytest.raises(FetchError) as caught:
        framing(*fields)
    assert caught.value.kind is FetchErrorKind.PROTOCOL


@pytest.mark.parametrize(("status", "method"), [(204, "GET"), (304, "GET"), (200, "HEAD"), (404, "HEAD")])
def test_answers_without_a_body(status: int, method: str) -> None:
    assert framing("Content-Length: 5", status=status, method=method).kind == "none"
    assert framing("Transfer-Encoding: chunked", status=status, method=method).kind == "none"
    assert framing(status=status, method=method).kind == "none"


def test_205_without_framing_is_not_waited_for() -> None:
    found = framing(status=205)
    assert (found.kind, found.reusable) == ("none", False)
    assert framing("Content-Length: 0", status=205).reusable
    assert framing("Transfer-Encoding: chunked", status=205).kind == "chunked"


def test_a_bodiless_answer_that_declares_a_body_ends_its_connection() -> None:
    """The body may come all the same, and would stand where the next answer is expected."""
    assert framing(status=304).reusable
    assert framing("Content-Length: 0", status=204).reusable
    assert not framing("Content-Length: 5", status=204).reusable
    assert not framing("Content-Length: 5", status=304).reusable
    assert not framing("Content-Length: 5", method="HEAD").reusable
    assert not framing("Transfer-Encoding: chunked", status=304).reusable


@pytest.mark.parametrize(
    ("fields", "version", "reusable"),
    [
        (["Content-Length: 5"], "1.1", True),
        (["Content-Length: 5", "Connection: close"], "1.1", False),
        (["Content-Length: 5", "Connection: foo, Close"], "1.1", False),
        (["Content-Length: 5", "Connection: keep-alive", "Connection: close"], "1.1", False),
        (["Content-Length: 5"], "1.0", False),
        (["Content-Length: 5", "Connection: Keep-Alive"], "1.0", True),
        (["Transfer-Encoding: chunked"], "1.1", True),
        (["Transfer-Encoding: chunked", "Connection: keep-alive"], "1.0", False),
        (["Transfer-Encoding: chunked", "Content-Length: 5"], "1.1", False),
        ([], "1.1", False),
    ],
)
def test_when_the_connection_may_be_used_again(fields: list[str], version: str, reusable: bool) -> None:
    assert framing(*fields, version=version).reusable is reusable


def test_length_body_and_what_follows() -> None:
    reader = framing("Content-Length: 5").reader()
    assert (reader.feed(b"he"), reader.done) == (b"he", False)
    assert (reader.feed(b"lloX"), reader.done, reader.surplus) == (b"llo", True, b"X")


@pytest.mark.parametrize("fields", [["Content-Length: 5"], ["Transfer-Encoding: chunked"]])
def test_a_body_cut_short_is_incomplete(fields: list[str]) -> None:
    for data in (b"", b"2"):
        with pytest.raises(FetchError) as caught:
            read(framing(*fields).reader(), data)
        assert caught.value.kind is FetchErrorKind.INCOMPLETE_BODY


def test_a_body_without_framing_ends_with_the_connection() -> None:
    reader = framing().reader()
    assert reader.feed(b"all") == b"all"
    reader.end()
    assert reader.done


@pytest.mark.parametrize(
    ("data", "body", "surplus"),
    [
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello", b""),
        (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nHTTP/1.1", b"hello world", b"HTTP/1.1"),
        (b"0005\r\nhello\r\n000\r\n\r\n", b"hello", b""),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", b""),
        (b'5;a=b;c="d e"\r\nhello\r\n0;x\r\n\r\n', b"hello", b""),
        (b"5  \r\nhello\r\n0\t\r\n\r\n", b"hello", b""),
        (b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\n\r\nmore", b"hello", b"more"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n", b""),
        (b"0\r\n\r\n", b"", b""),
    ],
)
def test_chunks_in_whatever_pieces_they_come(data: bytes, body: bytes, surplus: bytes) -> None:
    for size in range(1, len(data) + 1):
        reader = framing("Transfer-Encoding: chunked").reader()
        found = b"".join(
            reader.feed(data[at : at + size]) if not reader.done else _keep(reader, data[at : at + size])
            for at in range(0, len(data), size)
        )
        assert (found, reader.done, reader.surplus) == (body, True, surplus)


def _keep(reader: BodyReader, data: bytes) -> bytes:
    reader.surplus += data
    return b""


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"0\r\nA: b\n\r\n\r\n",
        b"0\r\nA: b\rB: c\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"-5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 5\r\nhello\r\n",
        b"5;a\x00b\r\nhello\r\n0\r\n\r\n",
        b"5\x0b\r\nhello\r\n",
        b"1000000000000000\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
    ],
)
def test_broken_chunks_are_refused(data: bytes) -> None:
    for size in (1, len(data)):
        reader = framing("Transfer-Encoding: chunked").reader()
        with pytest.raises(FetchError) as caught:  # noqa: PT012 - any of the pieces may be the one
            for at in range(0, len(data), size):
                reader.feed(data[at : at + size])
                if reader.failure is not None:
                    raise reader.failure
            reader.end()
        assert caught.value.kind is FetchErrorKind.PROTOCOL


def test_what_came_before_an_error_is_given_first() -> None:
    reader = framing("Transfer-Encoding: chunked").reader()
    assert reader.feed(b"5\r\nhello\r\nzz\r\n") == b"hello"
    assert reader.failure is not None


@pytest.mark.parametrize(
    "part",
    [b"5;" + b"e" * 5_000, b"5;" + b"e" * 4_000 + b"\r\nhello\r\n", b"0" * 5_000, b"0\r\n" + b"X: 1\r\n" * 5_000],
)
def test_what_no_body_limit_counts_is_bounded(part: bytes) -> None:
    """Extensions, leading zeros and trailers are read but not kept: a stream of them must end too."""
    reader = framing("Transfer-Encoding: chunked").reader()
    with pytest.raises(FetchError) as caught:  # noqa: PT012 - any of the pieces may be the one
        for _ in range(100):
            reader.feed(part)
            if reader.failure is not None:
                raise reader.failure
    assert caught.value.kind is FetchErrorKind.PROTOCOL


def test_many_small_chunks_take_linear_time() -> None:
    def seconds(count: int) -> float:
        data = b"1\r\nz\r\n" * count + b"0\r\n\r\n"
        reader = framing("Transfer-Encoding: chunked").reader()
        begun = time.process_time()
        size = sum(len(reader.feed(data[at : at + 65_536])) for at in range(0, len(data), 65_536))
        assert size == count
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(100_000) < 12 * seconds(20_000)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 300), max_size=5), st.binary(max_size=10))
def test_chunks_agree_with_h11(chunks: list[bytes], cuts: list[int], after: bytes) -> None:
    data = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n" + after
    reader = framing("Transfer-Encoding: chunked").reader()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = b""
    for start, stop in pairwise(edges):
        found += _keep(reader, data[start:stop]) if reader.done else reader.feed(data[start:stop])
    assert (found, reader.surplus) == (b"".join(chunks), after)
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    events = [peer.next_event()]
    while not isinstance(events[-1], h11.EndOfMessage):
        events.append(peer.next_event())
    assert found == b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_as_chunks_end_in_a_body_or_an_error_of_ours(data: bytes) -> None:
    reader = framing("Transfer-Encoding: chunked").reader()
    kinds = set()
    try:
        reader.feed(data)
        if reader.failure is not None:
            raise reader.failure
        reader.end()
    except FetchError as exc:
        kinds.add(exc.kind)
    assert kinds <= {FetchErrorKind.PROTOCOL, FetchErrorKind.INCOMPLETE_BODY}
