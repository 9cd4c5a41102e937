"""One visit to one page: go there, let it come to rest, read it, leave it; and what came of it, whatever happened.

Owns the order of these steps and the outcome. Operational failures are outcomes and never raised: a page may hang, crash, grow without end
or take the browser with it, and the visit still ends in time and tells what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs
import trio

from forage.browser.errors import CommandRefusedError, NoAnswerError, PageGoneError
from forage.browser.page import GIVEN_UP, Page
from forage.browser.reading import PageReader, TooLargeError
from forage.browser.request_log import (
    BrowserFacts,
    ConsoleMessage,
    CspIssue,
    Dialog,
    Download,
    PageOutcome,
    RequestEntry,
    RequestOutcome,
    Speculation,
    Viewport,
)
from forage.browser.union import NamedRequest, unite
from forage.browser.wording import text_of
from forage.egress import JudgedUrl, judge_url
from forage.errors import BrowserError, BrowserLostError, EgressCode, EgressDeniedError

if TYPE_CHECKING:
    from forage.browser.browser import Browser
    from forage.browser.page_options import PageOptions

__all__ = ["Visit", "utc_now", "visit_page"]

_LINGER_SECONDS: Final = 0.5  # without anything at the guard
_MOST_LINGERS: Final = 4
_READING_AFTER_DEADLINE: Final = 1.5  # times as long as one answer may take: enough to see that a page hangs
_ALL_AFTER_DEADLINE: Final = 2.0


def utc_now() -> datetime:
    """The wall clock, for recorded times only."""
    return datetime.now(UTC)


@attrs.frozen(kw_only=True)
class Visit:
    """What came of it. ``outcome`` first: ``html``, ``text``, ``screenshot`` and ``final_url`` are there as far as the page was read.

    ``error`` is the outcome in words, ``code`` the guard's where it refused the document or could not reach it (an `EgressCode`).

    ``requests`` is the union of what the browser told and what the guard saw. ``left_for`` are the places where the page tried to go by
    itself, none of which was asked for. ``stopped``: its script had to be ended. ``started_at`` is UTC, ``seconds`` what it took in all.
    """

    url: str
    outcome: PageOutcome
    error: str | None = None
    code: str | None = None
    final_url: str | None = None
    status: int | None = None
    html: str | None = None
    text: str | None = None
    screenshot: bytes | None = None
    requests: tuple[RequestEntry, ...] = ()
    left_for: tuple[str, ...] = ()
    csp: tuple[CspIssue, ...] = ()
    console: tuple[ConsoleMessage, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    downloads: tuple[Download, ...] = ()
    windows: tuple[str, ...] = ()
    speculations: tuple[Speculation, ...] = ()
    stopped: bool = False
    warnings: tuple[str, ...] = ()
    browser: BrowserFacts | None = None
    viewport: Viewport = attrs.field(factory=Viewport)
    started_at: str = ""
    seconds: float = 0.0


@attrs.define
class _Read:
    """What has been read so far."""

    html: str | None = None
    text: str | None = None
    screenshot: bytes | None = None
    icons: tuple[str, ...] = ()
    url: str = ""
    late: bool = False
    stopped: bool = False


async def visit_page(browser: Browser, url: str, options: PageOptions, *, now: Callable[[], datetime] = utc_now) -> Visit:
    """Visit ``url``. Raises nothing of its own; it may be cancelled at any time."""
    begun = trio.current_time()
    started_at = now().isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def ended(page: Page | None, outcome: PageOutcome, error: str | None, read: _Read) -> Visit:
        seconds = round(trio.current_time() - begun, 6)
        made = Visit(
            url=url,
            outcome=outcome,
            error=error,
            browser=browser.facts,
            viewport=options.viewport,
            started_at=started_at,
            seconds=seconds,
        )
        return made if page is None else _seen(made, page, read)

    try:
        judged = judge_url(url, options.egress.policy)
    except EgressDeniedError as exc:
        bad = exc.code is EgressCode.INVALID_SCHEME
        outcome = PageOutcome.SCHEME if bad else PageOutcome.FAILED
        return attrs.evolve(ended(None, outcome, str(exc), _Read()), code=exc.code.value)
    page: Page | None = None
    read = _Read()
    try:
        async with browser.open_page(options, judged) as page:
            with page.scope:
                await _steps(page, judged, options, read)
    except BrowserLostError as exc:
        return ended(page, PageOutcome.BROWSER_LOST, str(exc), read)
    except BrowserError as exc:
        return ended(page, PageOutcome.FAILED, str(exc), read)
    if page.outcome is not None:
        return ended(page, page.outcome, page.error, read)
    return ended(page, PageOutcome.NOT_IDLE if read.late else PageOutcome.OK, None, read)


async def _steps(page: Page, url: JudgedUrl, options: PageOptions, read: _Read) -> None:
    """All of it, on an open page. How it ends otherwise than well is told to the page."""
    reader = PageReader(page, options.answer_seconds)
    try:
        with trio.move_on_after(options.deadline) as loading:
            await _load(page, url, options, reader)
        read.late = loading.cancelled_caught
        if page.navigation.shown is None:
            page.end(PageOutcome.NOT_IDLE if read.late else PageOutcome.FAILED, page.navigation.error or "its document did not come")
            return
        with trio.move_on_at(loading.deadline + _READING_AFTER_DEADLINE * options.answer_seconds) as reading:
            await _read(page, options, reader, read)
        if reading.cancelled_caught:
            page.end(PageOutcome.HUNG, "it did not answer in time")
            return
        if options.read_console:
            with trio.move_on_at(loading.deadline + _ALL_AFTER_DEADLINE * options.answer_seconds):
                await reader.console()
        if options.teardown:
            read.url = page.notes.url or ""
            await _leave(page, options, reader, loading.deadline + _ALL_AFTER_DEADLINE * options.answer_seconds)
    except NoAnswerError as exc:
        page.end(PageOutcome.HUNG, str(exc))
    except TooLargeError as exc:
        page.end(PageOutcome.TOO_LARGE, str(exc))
    except PageGoneError as exc:
        page.end(PageOutcome.CRASHED if exc.crashed else PageOutcome.FAILED, str(exc))
    except CommandRefusedError as exc:
        page.end(PageOutcome.FAILED, str(exc))
    finally:
        read.stopped = reader.stopped


async def _load(page: Page, url: JudgedUrl, options: PageOptions, reader: PageReader) -> None:
    if not page.under_way:
        page.set_out(url)
        answer = await page.call("Page.navigate", {"url": url.url}, seconds=options.deadline + 1)
        if "errorText" in answer:
            page.navigation.fail(text_of(answer, "errorText"))
    await page.rest(options.min_wait)
    if page.navigation.error == GIVEN_UP:
        await page.told_of_download()
    if page.navigation.shown is not None:
        await page.set_up()
    if options.scroll and page.navigation.error is None:
        await reader.scroll_to_end()
        page.expect_events()
        await page.rest(0)


async def _read(page: Page, options: PageOptions, reader: PageReader, read: _Read) -> None:
    if not options.read_html:
        await reader.is_awake()
    else:
        read.html = await reader.html(options.max_dom_bytes)
    if options.read_text:
        read.text = await reader.text(options.max_dom_bytes)
    if options.find_icons:
        read.icons = await reader.icons()
    if options.screenshot != "no":
        read.screenshot = await reader.screenshot(options.screenshot)


async def _leave(page: Page, options: PageOptions, reader: PageReader, within: float) -> None:
    """Go away, and listen for what the page sends on its way out: the browser tells nothing of it, the guard sees it.

    From within first, until the time ``within`` at most: a document that goes by itself has sent everything before the next one is there.
    One that is sent away is unloaded later, and not at all when its process is slow. A page may keep itself from going: it is sent away.
    """
    page.navigation.finish()
    with trio.move_on_at(min(within, trio.current_time() + options.answer_seconds / 2)):
        await reader.go_from_within("about:blank")
        await page.left.wait()
    if not page.left.is_set():
        await reader.stop_scripts()  # one that spins on its way out keeps the next document from coming
        await page.call("Page.navigate", {"url": "about:blank"}, seconds=options.answer_seconds)
    for _ in range(_MOST_LINGERS):
        known = len(page.decisions)
        await trio.sleep(_LINGER_SECONDS)
        if len(page.decisions) == known:
            return


def _seen(made: Visit, page: Page, read: _Read) -> Visit:
    """The result with all that was seen of the page."""
    notes, navigation = page.notes, page.navigation
    document = navigation.request_id
    icons = [NamedRequest(method="GET", url=icon, resource_type="Image", outcome=RequestOutcome.NAMED) for icon in read.icons]
    requests = unite(page.requests.hops, page.decisions, [*page.named, *icons], document=document, viewport=made.viewport)
    last = next((entry for entry in reversed(requests) if document is not None and entry.request_id == document), None)
    code = navigation.code or (None if last is None else last.code)
    error = made.error
    if code is not None and navigation.code is None and made.outcome is PageOutcome.FAILED:
        error = f"the guard did not let its document through, or did not reach it: {code}"
    return attrs.evolve(
        made,
        error=error,
        code=code,
        final_url=(read.url or notes.url) if navigation.shown is not None else None,
        status=None if last is None else last.status,
        html=read.html,
        text=read.text,
        screenshot=read.screenshot,
        requests=requests,
        left_for=tuple(navigation.left_for),
        csp=tuple(notes.csp),
        console=tuple(notes.console),
        dialogs=tuple(notes.dialogs),
        downloads=tuple(notes.downloads),
        windows=tuple(notes.windows),
        speculations=tuple(notes.speculations),
        stopped=read.stopped,
        warnings=tuple(page.warnings),
    )
