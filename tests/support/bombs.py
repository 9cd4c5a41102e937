"""Small streams that unfold to 10 GiB of zeros, made piece by piece, in each content coding."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import brotli

__all__ = ["BOMBS", "UNFOLDED"]

UNFOLDED = 10 * 1024**3
_BLOCK = 1_048_576


def _flushed(window: int) -> tuple[bytes, bytes]:
    """The start of a deflate stream and a block of it that may be repeated."""
    packer = zlib.compressobj(9, wbits=window)
    first = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    return first, packer.compress(bytes(_BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)


def gzip_bomb() -> Iterator[bytes]:
    first, block = _flushed(31)
    yield first
    for _ in range(UNFOLDED // _BLOCK):
        yield block


def deflate_bomb() -> Iterator[bytes]:
    first, block = _flushed(15)
    yield first
    for _ in range(UNFOLDED // _BLOCK):
        yield block


def brotli_bomb() -> Iterator[bytes]:
    packer = brotli.Compressor(quality=1, lgwin=22)
    zeros = bytes(16 * _BLOCK)
    for _ in range(UNFOLDED // len(zeros)):
        yield packer.process(zeros) + packer.flush()


def zstd_bomb() -> Iterator[bytes]:
    """RFC 8878: a frame of run-length blocks, each 4 bytes for 128 KiB, with the largest window that HTTP allows."""
    yield b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([13 << 3])  # no content size, window 2^(10+13) = 8 MiB
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    for _ in range(UNFOLDED // (131_072 * 1024)):
        yield block * 1024


BOMBS = {"gzip": gzip_bomb, "deflate": deflate_bomb, "br": brotli_bomb, "zstd": zstd_bomb}
