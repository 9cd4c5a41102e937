"""Content codings: every form in use is undone, whatever its pieces; what is wrong is told apart; bombs stop early in bounded memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.egress.codings import BodyDecoder
from forage.egress.decoders import MAX_MEMBERS
from forage.errors import FetchError, FetchErrorKind, ResponseTooLargeError
from tests.support.bombs import BOMBS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"<!doctype html><title>ok</title><p>hello</p>" * 50


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


def decode(codings: str, data: bytes, *, limit: int = 1 << 24, size: int | None = None) -> tuple[bytes, list[str]]:
    names = [name.strip().encode() for name in codings.split(",")]
    decoder = BodyDecoder(names, limit)
    step = size or max(len(data), 1)
    out = b"".join(piece for at in range(0, len(data), step) for piece in decoder.feed(data[at : at + step]))
    return out + b"".join(decoder.finish()), decoder.warnings


def refused(codings: str, data: bytes) -> None:
    for size in (1, 7, None):
        with pytest.raises(FetchError) as caught:
            decode(codings, data, size=size)
        assert caught.value.kind is FetchErrorKind.DECODE_ERROR


@pytest.mark.parametrize("size", [1, 2, 3, 17, None])
@pytest.mark.parametrize("coding", PACK)
def test_each_coding_in_whatever_pieces_it_comes(coding: str, size: int | None) -> None:
    assert decode(coding, PACK[coding](TEXT), size=size) == (TEXT, [])


@pytest.mark.parametrize("size", [1, 2, None])
def test_deflate_without_its_zlib_wrapper(size: int | None) -> None:
    for text in (TEXT, b"", b"x", bytes(300)):
        assert decode("deflate", raw_deflate(text), size=size) == (text, [])


@pytest.mark.parametrize("outer", PACK)
@pytest.mark.parametrize("inner", PACK)
def test_stacked_codings_are_undone_last_one_first(inner: str, outer: str) -> None:
    data = PACK[outer](PACK[inner](TEXT))
    assert decode(f"{inner}, {outer}", data) == (TEXT, [])
    assert decode(f"{inner}, {outer}", data, size=3) == (TEXT, [])


@pytest.mark.parametrize("coding", PACK)
def test_no_bytes_at_all_are_an_empty_body(coding: str) -> None:
    assert decode(coding, b"") == (b"", [])
    assert decode(f"{coding}, {coding}", b"") == (b"", [])


@pytest.mark.parametrize("coding", PACK)
def test_an_empty_stream_is_an_empty_body(coding: str) -> None:
    assert decode(coding, PACK[coding](b"")) == (b"", [])


def test_identity_and_nothing_leave_the_bytes_alone() -> None:
    assert decode("identity", TEXT) == (TEXT, [])
    assert BodyDecoder([], 1).idle


def test_an_unknown_coding_passes_through_with_a_warning() -> None:
    assert decode("utf-8", TEXT) == (TEXT, ["content-encoding-unknown"])
    assert decode("utf-8, gzip", gzip.compress(TEXT)) == (TEXT, ["content-encoding-unknown"])
    assert decode("gzip, utf-8", gzip.compress(TEXT)) == (TEXT, ["content-encoding-unknown"])


@pytest.mark.parametrize("size", [1, 5, None])
@pytest.mark.parametrize("text", [TEXT, b"\x1f", b"\x1f\x1f", b"(", b"(\xb5/"])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_bytes_that_never_were_that_coding_pass_through_with_a_warning(coding: str, text: bytes, size: int | None) -> None:
    assert decode(coding, text, size=size) == (text, ["content-encoding-mismatch"])


@pytest.mark.parametrize("size", [1, 5, None])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_streams_one_after_another_are_one_body(coding: str, size: int | None) -> None:
    data = PACK[coding](b"one ") + PACK[coding](b"") + PACK[coding](b"two")
    assert decode(coding, data, size=size) == (b"one two", [])


def test_skippable_frames_of_zstd_are_skipped() -> None:
    skip = b"\x5a\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert decode("zstd", skip + zstd.compress(TEXT) + skip, size=3) == (TEXT, [])


@pytest.mark.parametrize("size", [1, 5, None])
@pytest.mark.parametrize("junk", [b"junk", b"\x00" * 20, b"\x1f", b"(\xb5"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_bytes_after_the_stream_are_dropped_with_a_warning(coding: str, junk: bytes, size: int | None) -> None:
    assert decode(coding, PACK[coding](TEXT) + junk, size=size) == (TEXT, ["content-encoding-trailing"])


def test_bytes_after_a_brotli_stream_are_an_error_however_they_come() -> None:
    refused("br", brotli.compress(TEXT) + b"junk")


@pytest.mark.parametrize("coding", PACK)
def test_a_stream_cut_short_is_a_decode_error(coding: str) -> None:
    data = PACK[coding](TEXT)
    for cut in (len(data) - 1, len(data) // 2, 10):
        refused(coding, data[:cut])


def test_a_second_stream_cut_short_is_a_decode_error() -> None:
    refused("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-3])
    refused("zstd", zstd.compress(TEXT) + zstd.compress(TEXT)[:-3])


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", b"\x1f\x8b\x08\x00garbage-garbage"),
        ("gzip", gzip.compress(TEXT, mtime=0)[:-8] + bytes(8)),
        ("deflate", zlib.compress(TEXT)[:-4] + bytes(4)),
        ("deflate", b"<html>not deflate"),
        ("br", b"<html>not brotli"),
        ("zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 40),
    ],
)
def test_a_broken_stream_is_a_decode_error(coding: str, data: bytes) -> None:
    refused(coding, data)


def test_a_zstd_window_above_8_mib_is_refused() -> None:
    def pack(log: int) -> bytes:
        packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
        return packer.compress(TEXT * 100) + packer.flush()

    assert decode("zstd", pack(23)) == (TEXT * 100, [])
    refused("zstd", pack(24))


def test_more_than_five_codings_are_refused() -> None:
    data = TEXT
    for _ in range(5):
        data = gzip.compress(data)
    assert decode("gzip, gzip, gzip, identity, gzip, gzip", data) == (TEXT, [])
    with pytest.raises(FetchError) as caught:
        BodyDecoder([b"gzip"] * 6, 1 << 20)
    assert caught.value.kind is FetchErrorKind.DECODE_ERROR


@pytest.mark.parametrize("coding", PACK)
def test_the_limit_holds_for_what_comes_out(coding: str) -> None:
    data = PACK[coding](TEXT)
    assert decode(coding, data, limit=len(TEXT))[0] == TEXT
    with pytest.raises(ResponseTooLargeError) as caught:
        decode(coding, data, limit=len(TEXT) - 1)
    assert caught.value.limit == len(TEXT) - 1


def test_the_limit_holds_for_every_layer() -> None:
    """An inner stream may be large even where the final body is small."""
    inner = zlib.compress(b"x") + bytes(1 << 20)
    with pytest.raises(ResponseTooLargeError):
        decode("deflate, gzip", gzip.compress(inner), limit=1 << 19)


@pytest.mark.parametrize("coding", BOMBS)
def test_a_bomb_stops_within_two_pieces_of_the_limit(coding: str) -> None:
    decoder = BodyDecoder([coding.encode()], 1_000_000)
    given_out = fed = 0
    with pytest.raises(ResponseTooLargeError):  # noqa: PT012 - any of the pieces may be the one
        for data in BOMBS[coding]():
            fed += len(data)
            for piece in decoder.feed(data):
                given_out += len(piece)
    assert given_out <= 1_000_000
    assert fed < 40_000


def test_four_bombs_of_10_gib_stay_under_32_mib_of_growth() -> None:
    script = """
import itertools
from pathlib import Path
from forage.egress.codings import BodyDecoder
from forage.errors import ResponseTooLargeError
from tests.support.bombs import BOMBS

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

def begin(bomb):  # the compressor of the br bomb holds 16 MiB of zeros: not the decoder's
    stream = bomb()
    return [next(stream), next(stream)]

starts = {coding: begin(bomb) for coding, bomb in BOMBS.items()}
before = peak()
for coding, start in starts.items():
    decoder = BodyDecoder([coding.encode()], 16_000_000)
    try:
        for data in itertools.chain(start, itertools.repeat(start[-1], 100_000)):
            for piece in decoder.feed(data):
                pass
    except ResponseTooLargeError:
        continue
    raise AssertionError(coding)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) < 32 * 1024


EMPTY_PARTS = {
    "gzip": gzip.compress(b"", mtime=0),
    "zstd": zstd.compress(b""),
    "zstd skippable": b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
}


@pytest.mark.parametrize("part", EMPTY_PARTS)
def test_a_body_in_more_parts_than_any_writer_makes_is_a_decode_error(part: str) -> None:
    coding = part.partition(" ")[0]
    data = EMPTY_PARTS[part] * MAX_MEMBERS
    assert decode(coding, data, size=65_536) == (b"", [])
    with pytest.raises(FetchError) as caught:
        decode(coding, data + EMPTY_PARTS[part], size=65_536)
    assert caught.value.kind is FetchErrorKind.DECODE_ERROR


@pytest.mark.parametrize("part", EMPTY_PARTS)
def test_parts_that_hold_nothing_are_steps_all_the_same(part: str) -> None:
    """Whoever reads lets others run between two steps: a few KB that unfold to nothing must not keep every other task waiting."""
    decoder = BodyDecoder([part.partition(" ")[0].encode(), b"gzip"], 1 << 24)
    assert sum(1 for _ in decoder.feed(gzip.compress(EMPTY_PARTS[part] * 5_000))) >= 5_000


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_what_is_dropped_behind_a_stream_is_a_step_for_each_piece(coding: str) -> None:
    decoder = BodyDecoder([coding.encode(), b"gzip"], 1 << 25)
    steps = list(decoder.feed(gzip.compress(PACK[coding](b"x") + bytes(1 << 24))))
    assert b"".join(steps) == b"x"
    assert len(steps) >= 64


def test_a_large_stream_behind_a_small_one_and_small_ones_behind_it() -> None:
    large = bytes(range(256)) * 8_192
    for coding in ("gzip", "zstd"):
        data = PACK[coding](b"a") + PACK[coding](large) + PACK[coding](b"b") * 50
        assert decode(coding, data) == (b"a" + large + b"b" * 50, [])


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_skippable_frame_cut_short_is_a_decode_error(cut: int) -> None:
    data = zstd.compress(TEXT) + b"\x5a\x2a\x4d\x18\x04\x00\x00\x00abcd"[:cut]
    if cut < 4:
        assert decode("zstd", data, size=5) == (TEXT, ["content-encoding-trailing"])
    else:
        refused("zstd", data)


@given(st.binary(max_size=300), st.sampled_from(sorted(PACK)), st.integers(1, 60))
def test_any_body_survives(data: bytes, coding: str, size: int) -> None:
    assert decode(coding, PACK[coding](data), size=size) == (data, [])


@given(st.binary(max_size=60), st.lists(st.sampled_from([*sorted(PACK), "unknown"]), min_size=1, max_size=3), st.integers(1, 60))
def test_any_bytes_end_in_a_body_or_an_error_of_ours_whatever_the_pieces(data: bytes, codings: list[str], size: int) -> None:
    def outcome(step: int | None) -> object:
        try:
            return decode(",".join(codings), data, limit=10_000, size=step)
        except FetchError as exc:
            return exc.kind

    assert outcome(None) == outcome(size)


@given(st.data())
def test_a_damaged_stream_ends_in_a_body_or_an_error_of_ours(data: st.DataObject) -> None:
    coding = data.draw(st.sampled_from(sorted(PACK)))
    packed = bytearray(PACK[coding](TEXT))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] = data.draw(st.integers(0, 255))
    kinds = set()
    try:
        decode(coding, bytes(packed), limit=100_000)
    except FetchError as exc:
        kinds.add(exc.kind)
    assert kinds <= {FetchErrorKind.DECODE_ERROR, FetchErrorKind.RESPONSE_TOO_LARGE}
