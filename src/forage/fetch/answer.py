"""What one request came to, as the rest of the package reads it (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from forage.fetch.result import FetchFailure

if TYPE_CHECKING:
    from forage.egress import CaptureFacts

__all__ = ["Answer", "AnswerHead", "without_query"]


def without_query(url: str) -> str:
    """A URL as it may stand in a message."""
    return url.partition("#")[0].partition("?")[0]


@attrs.frozen(kw_only=True)
class AnswerHead:
    """What the judgement of redirects reads."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


@attrs.frozen(kw_only=True)
class Answer:
    """What one request came to. ``failure`` and a ``status`` may both be there: a body that broke off has a head.

    ``fields`` are the values by lower-case name. ``body`` is None where it was not wanted or not whole. ``warnings`` are codes of the wire.
    ``waited`` is the seconds that the head took.
    """

    url: str
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    fields: Mapping[bytes, Sequence[bytes]] = attrs.field(factory=dict, repr=False)
    body: bytes | None = attrs.field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    facts: CaptureFacts | None = attrs.field(default=None, repr=False)
    failure: FetchFailure | None = None
    retry_after: float | None = None
    waited: float | None = None
    sent: bool = True

    @property
    def head(self) -> AnswerHead:
        """Status (0 where there is none) and fields."""
        return AnswerHead(status=self.status or 0, headers=self.headers)

    def values(self, name: str) -> list[str]:
        """The values of a field, each as latin-1 text, in wire order."""
        return [value.decode("latin-1") for value in self.fields.get(name.encode("ascii"), ())]

    def header(self, name: str) -> str | None:
        """The values of a field joined by a comma, None when it is absent."""
        values = self.values(name)
        return ", ".join(values) if values else None

    @property
    def location(self) -> str | None:
        """The first Location as text: UTF-8 where it is, other octets percent-encoded, as the guard reads it."""
        values = self.fields.get(b"location")
        if not values:
            return None
        value = values[0]
        try:
            return value.decode().strip(" \t")
        except UnicodeDecodeError:
            return "".join(chr(octet) if octet < 0x80 else f"%{octet:02X}" for octet in value).strip(" \t")
