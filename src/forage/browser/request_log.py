"""What a page asked for: one entry a hop, and the values around it (pure).

Owns the vocabulary of outcomes. The entries are the union of two logs, made in ``union``: the guard's, which is complete for what left the
browser, and the browser's own events, which know types, initiators and attempts that never left.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

__all__ = [
    "BrowserFacts",
    "ConsoleMessage",
    "CspIssue",
    "Dialog",
    "Download",
    "PageOutcome",
    "RequestEntry",
    "RequestOutcome",
    "Speculation",
    "Viewport",
]


class PageOutcome(StrEnum):
    """How a page ended. What was seen until then is in the result, whatever the outcome."""

    OK = "ok"
    NOT_IDLE = "not-idle"
    """The deadline passed while the page was still loading or asking; the document is there as far as it came."""
    FAILED = "failed"
    """The document did not load: refused by the guard, no answer, or a download. ``error`` says which."""
    TOO_LARGE = "too-large"
    HUNG = "hung"
    CRASHED = "crashed"
    EGRESS_LIMIT = "egress-limit"
    BROWSER_LOST = "browser-lost"
    SCHEME = "scheme"
    """Not http or https: nothing was opened, or the page had made the browser open something else."""


class RequestOutcome(StrEnum):
    """What became of one request."""

    ANSWERED = "answered"
    FAILED = "failed"
    """It ended without an answer: the network, the target, or the page itself ended it."""
    REFUSED = "refused"
    """By the guard; it never reached its target."""
    ABORTED = "aborted"
    """By the abort rule; it never reached its target."""
    UNREACHABLE = "unreachable"
    """The guard let it pass, and could not connect."""
    BLOCKED = "blocked"
    """By the browser itself (content security policy, mixed content, CORS before sending); it never left."""
    NAVIGATION = "navigation"
    """The page tried to leave; refused before it left the browser."""
    OPEN = "open"
    """Nothing was heard of it until the page was closed."""
    NAMED = "named"
    """The document names it, and this program of the browser does not fetch such things (icons)."""


@attrs.frozen(kw_only=True)
class Viewport:
    """Size of the window in CSS pixels, and device pixels for each."""

    width: int = 1280
    height: int = 800
    scale: float = 1.0

    def __str__(self) -> str:
        return f"{self.width}x{self.height}@{self.scale:g}"


@attrs.frozen(kw_only=True)
class BrowserFacts:
    """Which browser it was, and how it was contained.

    ``product`` as it names itself, ``program`` the file, ``sandbox``: its own was on.
    """

    product: str
    program: str
    kind: str
    transport: str
    sandbox: bool
    user: str | None = None


@attrs.frozen(kw_only=True)
class RequestEntry:
    """One hop of one request.

    ``number`` gives the order in which they were seen. ``url`` has no fragment; it is ``host:port`` for a tunnel that nothing explains, and
    such a request was made past everything that the browser tells. ``resource_type`` is the browser's, a hint. ``document``: the navigation
    itself, first hop. ``session`` is where it was seen: ``page``, ``frame``, ``worker``, ``popup`` and so on.

    ``in_browser``, ``at_guard``: in which log it was. ``decision`` (with ``code`` and ``rule``) and ``address`` are the guard's: of the
    request itself for http, of the tunnel to its host otherwise. ``failure`` is the browser's word for what went wrong, ``blocked`` its
    reason for not sending. ``started_at`` is UTC, ``seconds`` what it took where that is known.
    """

    number: int
    url: str
    method: str = "GET"
    resource_type: str | None = None
    outcome: RequestOutcome = RequestOutcome.OPEN
    hop: int = 0
    request_id: str | None = None
    document: bool = False
    session: str = "page"
    initiator: str | None = None
    status: int | None = None
    status_text: str = ""
    mime_type: str = ""
    protocol: str = ""
    body_bytes: int | None = None
    failure: str | None = None
    blocked: str | None = None
    from_cache: bool = False
    from_service_worker: bool = False
    in_browser: bool = False
    at_guard: bool = False
    decision: str | None = None
    code: str | None = None
    rule: str | None = None
    address: str | None = None
    started_at: str | None = None
    seconds: float | None = None
    redirect_url: str = ""
    viewport: Viewport | None = None

    @property
    def left(self) -> bool:
        """True when the guard let it pass: it reached its target, or could have."""
        return self.decision == "allowed"

    def to_json(self) -> dict[str, Any]:
        """Members for a row of output, without those that say nothing."""
        row: dict[str, Any] = {}
        for field in attrs.fields(RequestEntry):
            value = getattr(self, field.name)
            if value is None or value is False or value == "" or field.name == "viewport":
                continue
            row[_camel(field.name)] = value.value if isinstance(value, RequestOutcome) else value
        return row


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


@attrs.frozen(kw_only=True)
class CspIssue:
    """One violation of a content security policy, as the browser reports it. ``url`` is None for code and style without one."""

    directive: str
    kind: str
    url: str | None = None
    report_only: bool = False
    source: str | None = None


@attrs.frozen(kw_only=True)
class ConsoleMessage:
    """One line of the browser's log (what failed to load, what was blocked), or an error that a script wrote or threw."""

    level: str
    source: str
    text: str
    url: str | None = None


@attrs.frozen(kw_only=True)
class Dialog:
    """A dialog that the page opened, and that was answered at once: ``alert``, ``confirm``, ``prompt``, ``beforeunload``."""

    kind: str
    message: str


@attrs.frozen(kw_only=True)
class Download:
    """A download that was begun and denied; its request was made all the same."""

    url: str
    name: str


@attrs.frozen(kw_only=True)
class Speculation:
    """A prefetch or prerender that the page asked for, also one that the browser did not carry out."""

    kind: str
    url: str
    status: str
