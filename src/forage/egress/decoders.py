"""Decoders of single content codings, each giving out pieces of bounded size.

Owns gzip, deflate (both forms in use), br and zstd, and what is done about streams that are concatenated, mislabelled, cut short or
followed by something else. Stacking and limits are ``codings``'. Formats: RFC 1950 to 1952, 7932, 8878, 9659 (a zstd window of 8 MiB).

Members and frames may be a few bytes long and hold nothing, and a coding around them makes millions of them from a few KB. So they are
counted, each gives out a piece even when it is empty, and what is behind one is never copied as a whole to find the next.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import ClassVar, Protocol

import brotli

from forage.errors import FetchError, FetchErrorKind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LAYERS", "MAX_MEMBERS", "Layer"]

MAX_MEMBERS = 10_000
"""gzip members, or zstd frames with the skippable ones, of one body. Writers that work in blocks start one for 64 KiB or more."""

_PIECE = 262_144  # bytes one step may give out; bounds memory per layer
_SMALL_INPUT = 512  # bytes first given to a member behind another one; what it does not need is copied by its decoder
_ANY_INPUT = 1 << 30  # more than is ever fed at once
_ZSTD_WINDOW_LOG = 23  # RFC 9659: a decoder for HTTP refuses windows above 8 MiB

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f


def _broken(coding: str) -> FetchError:
    return FetchError(FetchErrorKind.DECODE_ERROR, f"the body is not valid {coding}")


class Layer(Protocol):
    """One coding being undone. ``feed`` gives pieces of at most _PIECE bytes or so; ``finish`` raises when the stream was cut.

    Each step of work gives a piece, an empty one where nothing came out of it, so that whoever asks can let others run.
    """

    def feed(self, data: bytes, /) -> Iterator[bytes]: ...

    def finish(self) -> Iterator[bytes]: ...


class _Members:
    """Streams one after another as one body, for gzip and zstd. A subclass says how one begins and undoes it.

    Bytes that begin no stream were never that coding, and pass with a warning; behind a stream they are dropped with another one.
    """

    __slots__ = ("_begun", "_input", "_pending", "_state", "_warn")

    coding: ClassVar[str]

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._state = "magic"  # magic | member | plain | over
        self._begun = 0  # members so far
        self._pending = b""  # what may be the start of a member
        self._input = _ANY_INPUT  # bytes the decoder is given at once

    def feed(self, data: bytes, /) -> Iterator[bytes]:
        if self._pending:
            data, self._pending = self._pending + data, b""
        at = 0
        while at < len(data):
            if self._state == "member":
                at = yield from self._undo(data, at)
            elif self._state == "magic":
                self._begin(data, at)
                if self._pending:
                    return
            else:
                if self._state == "plain":
                    yield data[at:]
                return

    def _begin(self, data: bytes, at: int) -> None:
        known = self._recognise(data, at)
        if known is None:
            self._pending = data[at:]
        elif known:
            self._begun += 1
            if self._begun > MAX_MEMBERS:
                raise _broken(f"{self.coding}: it has more than {MAX_MEMBERS} parts")
            self._input = _ANY_INPUT if self._begun == 1 else _SMALL_INPUT
            self._state = "member"
        else:
            self._not_a_member()

    def _not_a_member(self) -> None:
        self._warn("content-encoding-trailing" if self._begun else "content-encoding-mismatch")
        self._state = "over" if self._begun else "plain"

    def _next_input(self, data: bytes, at: int) -> bytes | memoryview:
        """Input for the decoder: twice as much each time, so that the copies it makes stay below the size of the member."""
        size, self._input = self._input, min(self._input * 2, _ANY_INPUT)
        return data if at == 0 and len(data) <= size else memoryview(data)[at : at + size]

    def finish(self) -> Iterator[bytes]:
        if self._state == "member" or len(self._pending) >= 4:  # the start of a skippable frame is longer than its magic
            raise _broken(f"{self.coding}: it is cut short")
        if self._pending:
            pending, self._pending = self._pending, b""
            self._not_a_member()
            if self._state == "plain":
                yield pending

    def _recognise(self, data: bytes, at: int) -> bool | None:
        """Whether a member begins at ``at``, made ready then; None where more bytes must tell."""
        raise NotImplementedError  # each coding has its own; this class is never made

    def _undo(self, data: bytes, at: int) -> Generator[bytes, None, int]:
        """Pieces of the member that goes on at ``at``; returns how far it went. Sets ``_state`` to magic at its end."""
        raise NotImplementedError  # as above


class _Gzip(_Members):
    """RFC 1952; members one after another are one body (2.2)."""

    __slots__ = ("_inflate",)

    coding = "gzip"

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(warn)
        self._inflate = zlib.decompressobj(31)

    def _recognise(self, data: bytes, at: int) -> bool | None:
        if not data.startswith(_GZIP_MAGIC, at):
            return None if len(data) - at < 2 and _GZIP_MAGIC.startswith(data[at:]) else False
        if self._begun:
            self._inflate = zlib.decompressobj(31)
        return True

    def _undo(self, data: bytes, at: int) -> Generator[bytes, None, int]:
        inflate = self._inflate
        while at < len(data):
            given = self._next_input(data, at)
            try:
                piece = inflate.decompress(given, _PIECE)
            except zlib.error as exc:
                raise _broken("gzip") from exc
            at += len(given)
            if inflate.eof:
                self._state = "magic"
                yield piece
                return at - len(inflate.unused_data)
            at -= len(inflate.unconsumed_tail)
            yield piece
        return at


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


class _Zstd(_Members):
    """RFC 8878: frames one after another. Skippable ones (3.1.2) are skipped here, as they need no decoder."""

    __slots__ = ("_decoder", "_skip")

    coding = "zstd"

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(warn)
        self._decoder = _zstd_decoder()
        self._skip = -1  # bytes to come of a skippable frame; -1 outside of one

    def _recognise(self, data: bytes, at: int) -> bool | None:
        if data.startswith(_ZSTD_MAGIC, at):
            if self._decoder.eof:
                self._decoder = _zstd_decoder()
            return True
        if len(data) - at < 4:
            return None
        if data[at] >> 4 != 5 or not data.startswith(_ZSTD_SKIPPABLE, at + 1):
            return False
        if len(data) - at < 8:
            return None
        self._skip = 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        return True

    def _undo(self, data: bytes, at: int) -> Generator[bytes, None, int]:
        if self._skip >= 0:
            stop = min(len(data), at + self._skip)
            self._skip -= stop - at
            if not self._skip:
                self._skip, self._state = -1, "magic"
            yield b""
            return stop
        decoder = self._decoder
        while at < len(data) or not decoder.needs_input:
            given = self._next_input(data, at) if decoder.needs_input else b""  # it keeps what it did not come to
            at += len(given)
            try:
                piece = decoder.decompress(given, _PIECE)
            except zstd.ZstdError as exc:
                raise _broken("zstd") from exc
            if decoder.eof:
                self._state = "magic"
                yield piece
                return at - len(decoder.unused_data)
            yield piece
        return at


def _zstd_decoder() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


LAYERS: dict[bytes, Callable[[Callable[[str], None]], Layer]] = {
    b"gzip": _Gzip,
    b"x-gzip": _Gzip,
    b"deflate": _Deflate,
    b"br": _Brotli,
    b"zstd": _Zstd,
}
