"""Pages rendered for a crawl: the renderer that `forage.fetch` asks for a page's body.

Owns what a rendering is to its caller: an outcome, what was read, and warnings in words. A page that cannot be rendered costs its caller
that rendering and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Final, Self

import attrs

from forage.browser.options import BrowserOptions
from forage.browser.page_options import PageOptions
from forage.browser.pool import BrowserPool, open_pool
from forage.browser.request_log import PageOutcome, RequestEntry
from forage.browser.visit import Visit, visit_page
from forage.egress import Dialer, EgressPolicy, ProxyLimits, ProxyRules, Resolver
from forage.errors import BrowserError, BrowserErrorCode

__all__ = ["ChromiumRenderer", "RenderResult"]

_DEFAULT_BYTES: Final = 4 * 64 * 1024 * 1024  # four times what a fetch takes of one body
_WORDS: Final = {
    PageOutcome.NOT_IDLE: "it had not come to rest at the deadline",
    PageOutcome.TOO_LARGE: "it is too large",
    PageOutcome.HUNG: "it does not answer",
    PageOutcome.CRASHED: "it crashed",
    PageOutcome.EGRESS_LIMIT: "it used up what it may use",
    PageOutcome.BROWSER_LOST: "the browser was lost",
    PageOutcome.SCHEME: "only http and https are opened",
    PageOutcome.FAILED: "its document could not be had",
}


@attrs.frozen(kw_only=True)
class RenderResult:
    """One rendering. ``visit`` has everything that is known of it."""

    visit: Visit

    @property
    def outcome(self) -> PageOutcome:
        return self.visit.outcome

    @property
    def html(self) -> str:
        """The document. Raises BrowserError (``browser-no-document``) when there is none: the outcome says why."""
        if self.visit.html is None:
            raise BrowserError(self._said() or "no document was read", code=BrowserErrorCode.NO_DOCUMENT)
        return self.visit.html

    @property
    def final_url(self) -> str | None:
        """Where the page was in the end: its redirects and its own changes of history count."""
        return self.visit.final_url

    @property
    def left_for(self) -> tuple[str, ...]:
        """Where the page tried to go by itself; never asked for."""
        return self.visit.left_for

    @property
    def requests(self) -> tuple[RequestEntry, ...]:
        return self.visit.requests

    @property
    def warnings(self) -> tuple[str, ...]:
        """``code: what happened``, for whoever keeps the page."""
        said = self._said()
        facts = self.visit.browser
        return (
            *(() if said is None else (f"render-{self.outcome.value}: {said}",)),
            *(("render-stopped: the scripts of the page had to be ended before it answered",) if self.visit.stopped else ()),
            *(("render-no-sandbox: the browser ran without its sandbox",) if facts is not None and not facts.sandbox else ()),
            *(f"render-{warning}" for warning in self.visit.warnings),
        )

    def _said(self) -> str | None:
        if self.outcome is PageOutcome.OK:
            return None
        words = _WORDS[self.outcome]
        return words if self.visit.error is None else f"{words} ({self.visit.error})"


class ChromiumRenderer:
    """Renders pages in contained browsers. An async context manager; many tasks may render side by side.

    ``egress`` is what pages may reach, with ``resolver`` and ``dialer`` as for a fetcher: give it those of the fetch. ``browser`` says how
    browsers are started, ``pages`` how many pages are open at once, ``recycle_after`` how many a browser may have had. ``max_page_bytes``
    that all connections of a page may bring.

    Other keywords are those of `PageOptions`. Raises InvalidPolicyError.
    """

    def __init__(
        self,
        *,
        egress: EgressPolicy | ProxyRules | None = None,
        resolver: Resolver | None = None,
        dialer: Dialer | None = None,
        browser: BrowserOptions | None = None,
        pages: int | None = None,
        recycle_after: int = 200,
        max_page_bytes: int = _DEFAULT_BYTES,
        **options: Any,
    ) -> None:
        limits = ProxyLimits(bytes_down=max_page_bytes, bytes_up=max_page_bytes)
        self._options = PageOptions(egress=egress, resolver=resolver, dialer=dialer, limits=limits, **options)
        self._life = open_pool(browser, pages=pages, recycle_after=recycle_after)
        self._pool: BrowserPool | None = None

    async def __aenter__(self) -> Self:
        self._pool = await self._life.__aenter__()
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[bool | None]:
        # What the pool does at its end is shielded and bounded by itself; its nursery cannot be left within another scope.
        return self._life.__aexit__(kind, value, trace)

    async def render(self, url: str, **changes: Any) -> RenderResult:
        """Render one page. ``changes`` replace options of the renderer for it.

        Failures of the page are outcomes. Raises BrowserMissingError and BrowserError when there is no browser to render it in.
        """
        if self._pool is None:
            raise RuntimeError("the renderer is used outside of its block")
        options = attrs.evolve(self._options, **changes) if changes else self._options
        async with self._pool.browser() as browser:
            return RenderResult(visit=await visit_page(browser, url, options))
