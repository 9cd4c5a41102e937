"""A browser that many pages share: one context and one guard for each page, and a listener that refuses everything for the rest.

Owns the opening and closing of pages, which page an event of the browser belongs to, and whether the browser is still fit for new pages.
Nothing is shared between pages: no cookies, cache, storage or workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from forage.browser.cdp import JsonObject
from forage.browser.chromium import Chromium, open_chromium
from forage.browser.memory import MemoryWatch
from forage.browser.options import BrowserOptions
from forage.browser.page import Page
from forage.browser.page_options import PageOptions
from forage.browser.request_log import BrowserFacts, PageOutcome
from forage.browser.sessions import AUTO_ATTACH, HTTPS_PATTERNS
from forage.browser.wording import text_of
from forage.egress import EgressPolicy, JudgedUrl, Proxy, ProxyEvent, ProxyRules, deny_all, open_proxy
from forage.errors import BrowserError, BrowserLostError

__all__ = ["Browser", "open_browser"]

_BYPASS_NOTHING: Final = "<-loopback>"
_NOWHERE: Final = "about:blank"
# Measured: the other program asks for the first document of a page before it is told to let it run, and nobody hears of it.
_WAITS_WITH_ITS_DOCUMENT: Final = frozenset(["shell"])
_MOST_REFUSALS: Final = 1_000


class Browser:
    """A running browser. Pages may be opened side by side, each in a task of its own.

    ``broken`` says why it takes no new pages, None while it does. ``refused`` is what it tried to reach by itself, in vain.
    """

    def __init__(
        self, chromium: Chromium, facts: BrowserFacts, memory: MemoryWatch, refused: deque[ProxyEvent], *, close_seconds: float
    ) -> None:
        self._close_seconds = close_seconds
        self._connection = chromium.connection
        self._chromium = chromium
        self._memory = memory
        self._pages: dict[str, Page] = {}
        self._naming = 0
        self.facts = facts
        self.broken: str | None = None
        self.refused = refused
        self.opened = 0
        self._connection.route(None, self._handle)
        self._connection.on_end = self._lost

    @property
    def pages(self) -> int:
        """Pages that are open now."""
        return len(self._pages)

    @property
    def group(self) -> int:
        """Its process group."""
        return self._chromium.group

    @property
    def devtools_port(self) -> int | None:
        """The port of its debugging socket, which any program of this machine can reach; None with the pipe."""
        return self._chromium.port

    async def contexts(self) -> int:
        """Contexts that the browser holds, its own left out. Raises BrowserError."""
        answer = await self._connection.call("Target.getBrowserContexts")
        found: Any = answer.get("browserContextIds")
        return len(found) if isinstance(found, list) else 0

    def _lost(self, error: BrowserLostError) -> None:
        self.broken = self.broken or str(error)
        for page in self._pages.values():
            page.end(PageOutcome.BROWSER_LOST, self._memory.why_ended() or str(error))

    # events of the browser's own session

    def _handle(self, method: str, params: JsonObject, session: str | None) -> None:
        if method == "Target.attachedToTarget":
            info: Any = params.get("targetInfo")
            page = self._pages.get(text_of(info, "browserContextId")) if isinstance(info, dict) else None
            if page is not None:  # anything else stays as it is: waiting
                page.attach(text_of(params, "sessionId"), info)
        elif method == "Target.detachedFromTarget":
            for page in self._pages.values():
                page.requests.end_session(text_of(params, "sessionId"))
        elif method == "Browser.downloadWillBegin":
            page = self._page_of(text_of(params, "frameId"))
            if page is not None:
                page.begin_download(params)
        elif method == "Fetch.requestPaused":
            self._paused(params)

    def _page_of(self, frame: str) -> Page | None:
        return next((page for page in self._pages.values() if page.owns_frame(frame)), None)

    def _paused(self, params: JsonObject) -> None:
        """An https request of some page: it waits until it is answered."""
        page = self._page_of(text_of(params, "frameId"))
        # One of a frame that was not told of yet goes on; the guard decides about it, as about every other.
        passes = page is None or page.paused_at_browser(params)
        request = {"requestId": params.get("requestId")}
        if passes:
            self._connection.post("Fetch.continueRequest", request)
        else:
            self._connection.post("Fetch.failRequest", {**request, "errorReason": "BlockedByClient"})

    # pages

    @asynccontextmanager
    async def open_page(self, options: PageOptions, url: JudgedUrl | None = None) -> AsyncIterator[Page]:
        """A fresh page behind a guard of its own, until the block ends; then its context, guard and connections are gone.

        It shows nothing yet. It is on its way to ``url`` already (`Page.under_way`) where the program keeps it from asking for anything
        before all its events are on.

        Raises BrowserError; the browser is ``broken`` when the page could not be closed.
        """
        if self.broken is not None:
            raise BrowserLostError(self.broken)
        early: list[ProxyEvent] = []
        page: Page | None = None

        def on_event(event: ProxyEvent) -> None:
            early.append(event) if page is None else page.decided(event)

        async with _open_guard(
            options.egress, resolver=options.resolver, dialer=options.dialer, limits=options.limits, on_event=on_event
        ) as guard:
            made = await self._connection.call(
                "Target.createBrowserContext",
                {"disposeOnDetach": True, "proxyServer": guard.url, "proxyBypassList": _BYPASS_NOTHING},
                if_late=self._dispose_late,
            )
            context = text_of(made, "browserContextId")
            page = Page(self._connection, options, context=context, why_crashed=self._memory.why_ended)
            self._pages[context] = page
            for event in early:
                page.decided(event)
            try:
                await self._prepare(page, options, url)
                yield page
            finally:
                with trio.move_on_after(2 * self._close_seconds, shield=True):
                    await self._close(page, options)
                del self._pages[page.context]
                page.close()

    async def _prepare(self, page: Page, options: PageOptions, url: JudgedUrl | None) -> None:
        first = _NOWHERE
        if url is not None and self.facts.kind in _WAITS_WITH_ITS_DOCUMENT:
            # An empty document to start from costs a fifth of a static page, and a place in its history to which it may go back.
            first = url.url
            page.set_out(url)
        self.opened += 1
        self._naming += options.name_https
        post = self._connection.post
        post("Browser.setDownloadBehavior", {"behavior": "deny", "browserContextId": page.context, "eventsEnabled": True})
        naming = post("Fetch.enable", HTTPS_PATTERNS) if options.name_https and self._naming == 1 else None
        created = post("Target.createTarget", {"url": first, "browserContextId": page.context})
        if naming is not None:
            await self._connection.answer(naming)
        await self._connection.answer(created)
        await page.attached()
        if not page.under_way:
            await page.set_up()

    def _dispose_late(self, made: JsonObject) -> None:
        """A context that nobody waits for any more."""
        self._connection.post("Target.disposeBrowserContext", {"browserContextId": made.get("browserContextId")})

    async def _close(self, page: Page, options: PageOptions) -> None:
        self._naming -= options.name_https
        if options.name_https and self._naming == 0:
            self._connection.post("Fetch.disable")
        try:
            await self._connection.call("Target.disposeBrowserContext", {"browserContextId": page.context}, seconds=self._close_seconds)
        except BrowserError as exc:
            self.broken = self.broken or f"a page could not be closed: {exc}"


@asynccontextmanager
async def _open_guard(rules: EgressPolicy | ProxyRules | None, **options: Any) -> AsyncIterator[Proxy]:
    """A listener that a page or the browser is told to use. Raises BrowserError where none can be had."""
    async with AsyncExitStack() as stack:
        try:
            guard = await stack.enter_async_context(open_proxy(rules, **options))
        except OSError as exc:
            raise BrowserError(f"no listener for the guard of a page: {exc.strerror}") from exc
        yield guard


@asynccontextmanager
async def open_browser(options: BrowserOptions | None = None) -> AsyncIterator[Browser]:
    """Start a browser, until the block ends; then nothing of it is left: no process, profile, listener or connection.

    Raises what `open_chromium` raises.
    """
    options = options or BrowserOptions()
    refused: deque[ProxyEvent] = deque(maxlen=_MOST_REFUSALS)
    async with _open_guard(deny_all(), on_event=refused.append) as nowhere, open_chromium(options, proxy=nowhere.url) as chromium:
        version = await chromium.connection.call("Browser.getVersion")
        facts = BrowserFacts(
            product=text_of(version, "product"),
            program=chromium.program.path.name,
            kind=chromium.program.kind,
            transport=options.transport,
            sandbox=options.sandbox,
            user=options.user,
        )
        memory = MemoryWatch(chromium.group, options.max_process_bytes)
        chromium.nursery.start_soon(memory.run)
        browser = Browser(chromium, facts, memory, refused, close_seconds=options.close_seconds)
        await chromium.connection.call("Target.setAutoAttach", AUTO_ATTACH)
        yield browser
