"""What a mirror answered: values that the serving core makes and the gate reads (pure)."""

from __future__ import annotations

from enum import StrEnum

import attrs

__all__ = ["Outcome", "Served", "SiteAnswer"]


class Outcome(StrEnum):
    """What an answer was. Only a ``hit`` sent stored bytes that were checked."""

    HIT = "hit"
    EMPTY = "empty"
    TERMINAL = "terminal"
    MISS = "miss"
    NO_CAPTURE = "no-capture"
    INDEX = "index"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    REFUSED = "refused"


@attrs.frozen(kw_only=True)
class SiteAnswer:
    """One answer; ``key`` is the capture that was looked up, None where the path names none."""

    status: int
    outcome: Outcome
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = attrs.field(default=b"", repr=False)
    key: str | None = None


@attrs.frozen(kw_only=True)
class Served:
    """One answer of a mirror's server, as its log keeps it."""

    target: str
    status: int
    outcome: Outcome
    key: str | None
