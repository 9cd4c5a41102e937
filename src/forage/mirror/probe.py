"""The seam to a browser: what a render reports, and what a probe must be able to do (pure).

A probe renders one served document in a fresh context with no egress but the mirror's own origin, and reports every request that the page
made or tried to make. Who implements it: the browser layer for real, scripted ones for tests and static checkers.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

__all__ = ["CspFinding", "Probe", "ProbeSession", "RenderReport", "RequestRecord"]


@attrs.frozen(kw_only=True)
class RequestRecord:
    """One hop of one request.

    ``document`` marks the navigation itself (its request id is its loader id), first hop. ``status`` is None for a request without answer;
    ``failure`` says why. ``started_at`` is ISO-8601 UTC, ``seconds`` how long it took. ``initiator`` is what the browser says asked for it.
    """

    url: str
    resource_type: str | None = None
    method: str = "GET"
    document: bool = False
    status: int | None = None
    failure: str | None = None
    initiator: str | None = None
    started_at: str | None = None
    seconds: float | None = None
    comment: str | None = None


@attrs.frozen(kw_only=True)
class CspFinding:
    """One violation of the served content security policy.

    ``url`` is what was blocked or would have been; None for code and style without URL, then ``source`` says what it was: eval, inline.
    """

    message: str
    url: str | None = None
    directive: str = ""
    source: str = ""


@attrs.frozen(kw_only=True)
class RenderReport:
    """What one render showed.

    ``console`` are scripted lines to be filtered for violations; a real probe reports ``csp`` from the browser's own events instead.
    ``navigations`` are attempts of the page to leave, refused. ``browser`` and ``viewport`` go into the stamp.

    ``failure`` says why there is nothing to be judged: the page crashed, hangs, was not shown. ``unsettled`` says why more might have been
    asked for than was seen: what was counts, but such a render is never clean.
    """

    requests: tuple[RequestRecord, ...] = ()
    csp: tuple[CspFinding, ...] = ()
    console: tuple[str, ...] = ()
    navigations: tuple[str, ...] = ()
    browser: str | None = None
    viewport: str | None = None
    failure: str | None = None
    unsettled: str | None = None


class ProbeSession(Protocol):
    """A browser that runs. Documents may be rendered side by side, up to the probe's ``together``."""

    async def render(self, url: str) -> RenderReport:
        """Render the document at ``url`` and report. Raises BrowserError."""
        ...


class Probe(Protocol):
    """A browser that can be started."""

    @property
    def together(self) -> int:
        """How many documents may be rendered at once."""
        ...

    async def available(self) -> bool:
        """Whether there is a browser at all; starts nothing."""
        ...

    async def browser(self) -> str | None:
        """Name and version of the browser, None when that cannot be told without starting it."""
        ...

    def session(self) -> AbstractAsyncContextManager[ProbeSession]:
        """Start the browser until the block ends. Raises BrowserError."""
        ...
