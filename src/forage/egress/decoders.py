"""Decoders of single content codings, each giving out pieces of bounded size.

Owns gzip, deflate (both forms in use), br and zstd, and what is done about streams that are concatenated, mislabelled, cut short or
followed by something else. Stacking and limits are ``codings``'. Formats: RFC 1950 to 1952, 7932, 8878, 9659 (a zstd window of 8 MiB).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import brotli

from forage.errors import FetchError, FetchErrorKind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LAYERS", "Layer"]

_PIECE = 262_144  # bytes one step may give out; bounds memory per layer
_ZSTD_WINDOW_LOG = 23  # RFC 9659: a decoder for HTTP refuses windows above 8 MiB

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def _broken(coding: str) -> FetchError:
    return FetchError(FetchErrorKind.DECODE_ERROR, f"the body is not valid {coding}")


class Layer(Protocol):
    """One coding being undone. ``feed`` gives pieces of at most _PIECE bytes or so; ``finish`` raises when the stream was cut."""

    def feed(self, data: bytes, /) -> Iterator[bytes]: ...

    def finish(self) -> Iterator[bytes]: ...


class _Gzip:
    """Members one after another are one body (RFC 1952 2.2). Bytes without the magic were never gzip: they pass with a warning."""

    __slots__ = ("_inflate", "_pending", "_started", "_state", "_warn")

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._state = "magic"  # magic | member | plain | over
        self._started = False  # a member was opened
        self._pending = b""
        self._inflate = zlib.decompressobj(31)

    def feed(self, data: bytes, /) -> Iterator[bytes]:
        while data:
            if self._state == "member":
                yield from self._member(data)
                data = self._inflate.unused_data
                if not self._inflate.eof:
                    return
                self._state = "magic"
            elif self._state == "magic":
                data = self._begin(data)
            else:
                if self._state == "plain":
                    yield data
                return

    def _begin(self, data: bytes) -> bytes:
        data = self._pending + data
        self._pending = b""
        if data[:2] == _GZIP_MAGIC:
            self._inflate = zlib.decompressobj(31)
            self._state, self._started = "member", True
            return data
        if len(data) < 2 and _GZIP_MAGIC.startswith(data):
            self._pending = data
            return b""
        self._not_a_member()
        return data

    def _not_a_member(self) -> None:
        self._warn("content-encoding-trailing" if self._started else "content-encoding-mismatch")
        self._state = "over" if self._started else "plain"

    def _member(self, data: bytes) -> Iterator[bytes]:
        inflate = self._inflate
        try:
            while data and not inflate.eof:
                yield inflate.decompress(data, _PIECE)
                data = inflate.unconsumed_tail
        except zlib.error as exc:
            raise _broken("gzip") from exc

    def finish(self) -> Iterator[bytes]:
        if self._state == "member":
            raise _broken("gzip: it is cut short")
        if self._pending:
            pending, self._pending = self._pending, b""
            self._not_a_member()
            if self._state == "plain":
                yield pending


class _Deflate:
    """The zlib form of RFC 1950, or the bare form of RFC 1951 that servers also send under this name.

    Two bytes tell them apart: read as bare deflate, a zlib header would begin a stored block with padding that encoders leave zero.
    """

    __slots__ = ("_inflate", "_over", "_pending", "_warn")

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._pending = b""
        self._inflate: zlib._Decompress | None = None
        self._over = False

    def feed(self, data: bytes, /) -> Iterator[bytes]:
        if self._over:
            self._warn("content-encoding-trailing")
            return
        if self._inflate is None:
            data = self._pending + data
            if len(data) < 2:
                self._pending = data
                return
            self._inflate = zlib.decompressobj(15 if _is_zlib(data) else -15)
        inflate = self._inflate
        try:
            while data and not inflate.eof:
                yield inflate.decompress(data, _PIECE)
                data = inflate.unconsumed_tail
        except zlib.error as exc:
            raise _broken("deflate") from exc
        if inflate.eof:
            self._over = True
            if inflate.unused_data:
                self._warn("content-encoding-trailing")

    def finish(self) -> Iterator[bytes]:
        if not self._over:
            raise _broken("deflate: it is cut short")
        return iter(())


def _is_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and data[0] >> 4 <= 7 and int.from_bytes(data[:2], "big") % 31 == 0


class _Brotli:
    """RFC 7932. The decoder cannot say where its stream ended within the input, so bytes after the end are an error."""

    __slots__ = ("_decoder",)

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._decoder = brotli.Decompressor()

    def feed(self, data: bytes, /) -> Iterator[bytes]:
        decoder = self._decoder
        try:
            while True:
                yield decoder.process(data, output_buffer_limit=_PIECE)
                if decoder.can_accept_more_data():
                    return
                data = b""
        except brotli.error as exc:
            raise _broken("br") from exc

    def finish(self) -> Iterator[bytes]:
        if not self._decoder.is_finished():
            raise _broken("br: it is cut short")
        return iter(())


class _Zstd:
    """RFC 8878: frames one after another, skippable ones among them. Bytes without the magic were never zstd: they pass with a warning."""

    __slots__ = ("_decoder", "_pending", "_started", "_state", "_warn")

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._state = "magic"  # magic | frame | plain | over
        self._started = False
        self._pending = b""
        self._decoder = _zstd_decoder()

    def feed(self, data: bytes, /) -> Iterator[bytes]:
        while data:
            if self._state == "frame":
                yield from self._frame(data)
                if not self._decoder.eof:
                    return
                data = self._decoder.unused_data
                self._state = "magic"
            elif self._state == "magic":
                data = self._begin(data)
            else:
                if self._state == "plain":
                    yield data
                return

    def _begin(self, data: bytes) -> bytes:
        data = self._pending + data
        self._pending = b""
        if len(data) < 4:
            self._pending = data
            return b""
        if data[:4] == _ZSTD_MAGIC or (data[1:4] == b"\x2a\x4d\x18" and data[0] >> 4 == 5):
            self._decoder = _zstd_decoder()
            self._state, self._started = "frame", True
        else:
            self._not_a_frame()
        return data

    def _not_a_frame(self) -> None:
        self._warn("content-encoding-trailing" if self._started else "content-encoding-mismatch")
        self._state = "over" if self._started else "plain"

    def _frame(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        try:
            while not decoder.eof:
                if data or not decoder.needs_input:
                    yield decoder.decompress(data, _PIECE)
                    data = b""
                else:
                    return
        except zstd.ZstdError as exc:
            raise _broken("zstd") from exc

    def finish(self) -> Iterator[bytes]:
        if self._state == "frame":
            raise _broken("zstd: it is cut short")
        if self._pending:
            pending, self._pending = self._pending, b""
            self._not_a_frame()
            if self._state == "plain":
                yield pending


def _zstd_decoder() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


LAYERS: dict[bytes, Callable[[Callable[[str], None]], Layer]] = {
    b"gzip": _Gzip,
    b"x-gzip": _Gzip,
    b"deflate": _Deflate,
    b"br": _Brotli,
    b"zstd": _Zstd,
}
