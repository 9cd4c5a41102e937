"""Frames of a WebSocket: what is small passes untouched, however it is cut; what is large becomes a note of its size and owner."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser.frames import FrameGate, oversized_of
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


def texts(stream: bytes) -> list[bytes]:
    """Payloads of all frames behind the handshake."""
    assert stream.startswith(HANDSHAKE)
    at, found = len(HANDSHAKE), []
    while at < len(stream):
        size, begins = stream[at + 1], at + 2
        if size == 126:
            size, begins = int.from_bytes(stream[at + 2 : at + 4], "big"), at + 4
        found.append(stream[begins : begins + size])
        at = begins + size
    return found


def through(stream: bytes, cuts: list[int]) -> bytes:
    gate = FrameGate(LIMIT)
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return b"".join(gate.feed(stream[a:b]) for a, b in pairwise(edges))


@given(st.lists(st.binary(max_size=LIMIT), max_size=6), st.lists(st.integers(0), max_size=30))
def test_small_frames_pass_byte_by_byte(payloads: list[bytes], cuts: list[int]) -> None:
    stream = HANDSHAKE + b"".join(frame(payload) for payload in payloads)
    assert through(stream, cuts) == stream


@given(st.lists(st.sampled_from([0, 1, 125, 126, LIMIT, LIMIT + 1, 1_000, 70_000]), max_size=6), st.lists(st.integers(0), max_size=30))
def test_large_frames_become_notes_wherever_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    stream = HANDSHAKE + b"".join(frame(b"x" * size) for size in sizes)
    found = texts(through(stream, cuts))
    assert len(found) == len(sizes)
    for size, payload in zip(sizes, found, strict=True):
        if size <= LIMIT:
            assert payload == b"x" * size
        else:
            assert oversized_of(payload.decode()) == Oversized(size=size, number=None, session=None)


def test_a_note_says_whose_message_it_was() -> None:
    event = json.dumps({"method": "A.a", "params": {"x": "y" * 500}, "sessionId": SESSION}, separators=(",", ":"))
    reply = json.dumps({"id": 17, "result": {"x": "y" * 500}, "sessionId": SESSION}, separators=(",", ":"))
    found = texts(through(HANDSHAKE + frame(event.encode()) + frame(reply.encode()), []))
    notes = [oversized_of(payload.decode()) for payload in found]
    assert notes == [
        Oversized(size=len(event), number=None, session=SESSION),
        Oversized(size=len(reply), number=17, session=SESSION),
    ]


@pytest.mark.parametrize("first", [0x82, 0x88, 0x89, 0x8A, 0x01, 0x80])
def test_frames_of_other_kinds_are_the_readers_business(first: int) -> None:
    stream = HANDSHAKE + frame(b"x" * 500, first)
    assert through(stream, [70, 300]) == stream


def test_what_is_no_handshake_is_handed_on_for_the_reader_to_refuse() -> None:
    gate = FrameGate(LIMIT)
    assert b"".join(gate.feed(b"x" * 10_000) for _ in range(10))


@pytest.mark.parametrize("text", ["", "{}", '{"id":1}', '{"forage"'])
def test_other_messages_are_no_notes(text: str) -> None:
    assert oversized_of(text) is None
