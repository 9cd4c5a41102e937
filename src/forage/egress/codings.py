"""Content codings, bounded while they are undone.

Owns which codings are asked for and undone, alone or stacked, and their limits. Every layer (``decoders``) gives out pieces of bounded
size, counted against the limit, so that a bomb stops within one piece of it and memory never follows the declared ratio. See RFC 9110
section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from forage.egress.decoders import LAYERS
from forage.errors import FetchError, FetchErrorKind, ResponseTooLargeError

__all__ = ["ACCEPT_ENCODING", "MAX_CODINGS", "BodyDecoder"]

ACCEPT_ENCODING = "gzip, br, zstd"
"""What is asked for. deflate is left out: two incompatible forms go by that name. It is still undone when it comes."""

MAX_CODINGS = 5
"""Layers of one body; real servers use one, the limit stops work without end for a few header bytes."""


class BodyDecoder:
    """Undoes the codings of one body, the last one applied first.

    ``codings`` are the lower-case names in the order of the header; names that are no coding known here pass the bytes through with
    the warning ``content-encoding-unknown``. ``limit`` bounds the bytes that come out of each layer. ``feed`` and ``finish`` give pieces,
    and an empty one for each step of work that gave nothing, so that a caller can let others run meanwhile. They raise
    ResponseTooLargeError, or FetchError (DECODE_ERROR) for a stream that is broken, cut short, in too many parts or wrapped too often. A
    body without any bytes is never an error.
    """

    __slots__ = ("_layers", "_limit", "_seen", "_totals", "warnings")

    def __init__(self, codings: list[bytes], limit: int) -> None:
        self.warnings: list[str] = []
        self._limit = limit
        self._seen = False
        named = [coding for coding in codings if coding != b"identity"]
        if len(named) > MAX_CODINGS:
            raise FetchError(FetchErrorKind.DECODE_ERROR, f"the body is wrapped in {len(named)} codings, more than {MAX_CODINGS}")
        known = [coding for coding in reversed(named) if coding in LAYERS]
        if len(known) < len(named):
            self._warn("content-encoding-unknown")
        self._layers = [LAYERS[coding](self._warn) for coding in known]
        self._totals = [0] * len(self._layers)

    @property
    def idle(self) -> bool:
        """True when there is nothing to undo; ``feed`` would give back what it gets."""
        return not self._layers

    def _warn(self, code: str) -> None:
        if code not in self.warnings:
            self.warnings.append(code)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces for ``data``, received in order."""
        if data:
            self._seen = True
            yield from self._through(0, iter((data,)))

    def _through(self, depth: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
        if depth == len(self._layers):
            yield from pieces
            return
        for piece in pieces:
            if piece:
                yield from self._through(depth + 1, self._counted(depth, self._layers[depth].feed(piece)))
            yield b""  # a step, whatever became of it: layers may swallow millions of bytes

    def _counted(self, depth: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._totals[depth] += len(piece)
            if self._totals[depth] > self._limit:
                raise ResponseTooLargeError(self._limit)
            yield piece

    def finish(self) -> Iterator[bytes]:
        """The last pieces, once the whole body was fed."""
        if not self._seen:
            return
        for depth, layer in enumerate(self._layers):
            yield from self._through(depth + 1, self._counted(depth, layer.finish()))
