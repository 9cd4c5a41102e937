"""Frames of a WebSocket: what is small passes untouched, however it is cut; what is large becomes a note of its size and owner."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser.frames import FrameGate
from forage.browser.oversized import Oversized

HANDSHAKE = b"HTTP/1.1 101 WebSocket Protocol Handshake\r\nUpgrade: WebSocket\r\n\r\n"
LIMIT = 200
SESSION = "0123456789ABCDEF0123456789ABCDEF"


def frame(payload: bytes, first: int = 0x81) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes([first, size]) + payload
    if size < 65_536:
        return bytes([first, 126]) + size.to_bytes(2, "big") + payload
    return bytes([first, 127]) + size.to_bytes(8, "big") + payload


Fed = tuple[bytes, list[str | Oversized]]


def through(stream: bytes, cuts: list[int]) -> Fed:
    """What a reader sees of a stream that comes in pieces, and the messages that were taken."""
    gate = FrameGate(LIMIT)
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    seen = b"".join(gate.feed(stream[a:b]) for a, b in pairwise(edges))
    return seen, list(gate.messages)


@given(st.lists(st.text(max_size=LIMIT // 4), max_size=6), st.lists(st.integers(0), max_size=30))
def test_whole_messages_are_taken_however_they_are_cut(texts: list[str], cuts: list[int]) -> None:
    stream = HANDSHAKE + b"".join(frame(text.encode()) for text in texts)
    assert through(stream, cuts) == (HANDSHAKE, texts)


@given(st.lists(st.sampled_from([0, 1, 125, 126, LIMIT, LIMIT + 1, 1_000, 70_000]), max_size=6), st.lists(st.integers(0), max_size=30))
def test_large_messages_become_notes_wherever_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    stream = HANDSHAKE + b"".join(frame(b"x" * size) for size in sizes)
    notes = [Oversized(size=size, number=None, session=None) if size > LIMIT else "x" * size for size in sizes]
    assert through(stream, cuts) == (HANDSHAKE, notes)


def test_a_note_says_whose_message_it_was() -> None:
    event = json.dumps({"method": "A.a", "params": {"x": "y" * 500}, "sessionId": SESSION}, separators=(",", ":"))
    reply = json.dumps({"id": 17, "result": {"x": "y" * 500}, "sessionId": SESSION}, separators=(",", ":"))
    _, notes = through(HANDSHAKE + frame(event.encode()) + frame(reply.encode()), [])
    assert notes == [
        Oversized(size=len(event), number=None, session=SESSION),
        Oversized(size=len(reply), number=17, session=SESSION),
    ]


@pytest.mark.parametrize("first", [0x82, 0x88, 0x89, 0x8A, 0x01, 0x80])
def test_frames_of_other_kinds_are_the_readers_business(first: int) -> None:
    other = frame(b"x" * 500, first)
    assert through(HANDSHAKE + frame(b"{}") + other + frame(b"[]"), [70, 300]) == (HANDSHAKE + other, ["{}", "[]"])


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert through(HANDSHAKE + frame(b"a\xffb"), [])[1] == ["a\ufffdb"]


def test_what_is_no_handshake_is_handed_on_for_the_reader_to_refuse() -> None:
    gate = FrameGate(LIMIT)
    assert b"".join(gate.feed(b"x" * 10_000) for _ in range(10))
