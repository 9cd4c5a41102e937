"""The probe that renders: documents of a mirror in a contained Chromium, and what its logs mean to the gate.

Owns how a mirrored document is watched (no egress but the mirror's own origin, a fresh context for each viewport), which entries of the
browser's log become records, and which renders prove nothing. What a record means is ``leaks``' and ``gate``'s business.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from forage.browser import (
    BrowserFacts,
    BrowserOptions,
    BrowserPool,
    CspIssue,
    LeftBehindError,
    PageOutcome,
    ProbeOptions,
    RequestEntry,
    RequestLog,
    RequestOutcome,
    Viewport,
    Visit,
    find_program,
    open_browser,
    open_pool,
    probe_document,
)
from forage.egress import EgressPolicy, ProxyRules, only
from forage.errors import BrowserLostError, BrowserMissingError
from forage.mirror.leaks import url_origin
from forage.mirror.probe import CspFinding, RenderReport, RequestRecord

__all__ = ["BrowserProbe", "browser_name", "csp_finding", "render_report", "request_record"]

_log = logging.getLogger("forage.mirror")

ARCHIVE_FAMILY: Final = ("archive.org",)
"""Hosts that are refused with all below them, and told as aborted."""

_MOST_TOGETHER: Final = 4
_ATTEMPTS: Final = 2
_PORT: Final = re.compile(r":[0-9]+\Z")
_TEARDOWN: Final = "sent past the browser's own log, as pages do when they are left"
_SOURCES: Final = {
    "kInlineViolation": "inline",
    "kEvalViolation": "eval",
    "kWasmEvalViolation": "wasm-eval",
    "kTrustedTypesSinkViolation": "trusted-types",
    "kTrustedTypesPolicyViolation": "trusted-types",
    "kURLViolation": "",
}


class BrowserProbe:
    """Renders documents in Chromium, ``together`` at once (by default one for each processor, at most 4).

    ``browser`` says which program and how it is contained; by default the full one where it is installed, as icons are requests, too.
    ``egress`` None: documents are served on loopback; a policy: wherever it lets them be. Only their own origin passes either way.
    ``viewports``: a document is rendered once for each, and the requests of all count. ``min_wait``, ``quiet`` and ``deadline`` in seconds,
    as in `ProbeOptions`. Raises InvalidPolicyError.
    """

    def __init__(
        self,
        browser: BrowserOptions | None = None,
        *,
        egress: EgressPolicy | None = None,
        viewports: Iterable[Viewport] = (Viewport(),),
        min_wait: float = 4.0,
        quiet: float = 0.5,
        deadline: float = 30.0,
        together: int | None = None,
    ) -> None:
        self._browser = BrowserOptions(prefer="full") if browser is None else browser
        self._egress = egress
        self._options = ProbeOptions(
            abort_hosts=ARCHIVE_FAMILY, viewports=tuple(viewports), min_wait=min_wait, quiet=quiet, deadline=deadline
        )
        for viewport in self._options.viewports:
            self._options.page(viewport, program_fetches_icons=True)  # checked here, not when the first document is rendered
        self._together = min(_MOST_TOGETHER, os.cpu_count() or 1) if together is None else together

    @property
    def together(self) -> int:
        return self._together

    async def available(self) -> bool:
        """Whether the program is installed; starts nothing."""
        await trio.lowlevel.checkpoint()
        try:
            find_program(self._browser.program, prefer=self._browser.prefer)
        except BrowserMissingError:
            return False
        return True

    async def browser(self) -> str | None:
        """Name and version, by starting it once. Raises BrowserError."""
        async with open_browser(self._browser) as browser:
            return browser_name(browser.facts)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[_Session]:
        """Start the browser, at once, so that one that cannot be started fails here and not for every document. Raises BrowserError."""
        over = False
        try:
            async with open_pool(self._browser, pages=self._together) as pool:
                async with pool.browser():
                    pass
                yield _Session(pool, self._options, self._egress)
                over = True
        except LeftBehindError as exc:
            if not over:
                raise
            # What was verified stays verified; whoever runs this has to know what was left on the machine.
            _log.error("%s", exc)


@attrs.frozen(eq=False)
class _Session:
    """A browser that runs."""

    pool: BrowserPool
    options: ProbeOptions
    egress: EgressPolicy | None

    async def render(self, url: str) -> RenderReport:
        """Render and report. A browser that is lost is replaced, once: another document may have taken it down. Raises BrowserError."""
        origin = url_origin(url)
        rules = only(origin) if self.egress is None else ProxyRules(policy=self.egress, origins=(origin,))
        options = attrs.evolve(self.options, egress=rules)
        for attempt in range(1, _ATTEMPTS + 1):
            async with self.pool.browser() as browser:
                log = await probe_document(browser, url, options)
            if log.outcome is not PageOutcome.BROWSER_LOST or attempt == _ATTEMPTS:
                break
        if log.outcome is PageOutcome.BROWSER_LOST:
            raise BrowserLostError(log.error or "the browser was lost")
        return render_report(log)


def browser_name(facts: BrowserFacts) -> str:
    """What goes into a stamp: the product as it names itself, and whether it ran without its sandbox."""
    return facts.product if facts.sandbox else f"{facts.product} (no sandbox)"


def render_report(log: RequestLog) -> RenderReport:
    """What the gate needs of a log. Attempts to leave are no requests of the document."""
    refused = [entry.url for visit in log.visits for entry in visit.requests if entry.outcome is RequestOutcome.NAVIGATION]
    navigations = tuple(dict.fromkeys([*log.left_for, *refused]))
    return RenderReport(
        requests=tuple(request_record(entry) for visit in log.visits for entry in _requests(visit, navigations)),
        csp=tuple(map(csp_finding, log.csp)),
        navigations=navigations,
        browser=None if log.browser is None else browser_name(log.browser),
        viewport=",".join(str(visit.viewport) for visit in log.visits),
        failure=next((why for visit in log.visits if (why := _failure(visit)) is not None), None),
        unsettled=next((why for visit in log.visits if (why := _unsettled(visit)) is not None), None),
    )


def _requests(visit: Visit, navigations: Iterable[str]) -> Iterator[RequestEntry]:
    """What the document asked for. The full browser opens a connection ahead of a navigation that is refused: no request of its own."""
    frames = [entry.url for entry in visit.requests if entry.in_browser and entry.resource_type == "Document" and not entry.document]
    ahead = Counter(filter(None, map(_tunnel_of, [*navigations, *frames])))
    for entry in visit.requests:
        if entry.method == "CONNECT" and not entry.in_browser and ahead[entry.url] > 0:
            ahead[entry.url] -= 1
        elif entry.outcome is not RequestOutcome.NAVIGATION:
            yield entry


def _tunnel_of(url: str) -> str | None:
    """Host and port, as a guard tells a tunnel to where ``url`` leads; None for what goes through none."""
    origin = url_origin(url)
    if not origin.startswith("https://"):
        return None
    host = origin.removeprefix("https://")
    return host if _PORT.search(host) else f"{host}:443"


def request_record(entry: RequestEntry) -> RequestRecord:
    """One entry of the log. A tunnel that nothing explains becomes the URL of its host: more is not known of it."""
    url = f"https://{entry.url}/" if entry.method == "CONNECT" else entry.url
    failure = entry.failure or entry.blocked or (None if entry.outcome is RequestOutcome.ANSWERED else entry.outcome.value)
    return RequestRecord(
        url=url,
        resource_type=entry.resource_type,
        method=entry.method,
        document=entry.document,
        status=entry.status,
        failure=failure,
        initiator=entry.initiator,
        started_at=entry.started_at,
        seconds=entry.seconds,
        comment=_comment(entry),
    )


def _comment(entry: RequestEntry) -> str | None:
    where = None if entry.viewport is None else f"viewport {entry.viewport}"
    what: str | None
    if entry.outcome is RequestOutcome.NAMED:
        what = "named by the document, not fetched by this program"
    elif not entry.in_browser:
        what = _TEARDOWN
    else:
        what = None if entry.session == "page" else f"asked for by a {entry.session}"
    return "; ".join(filter(None, [what, where])) or None


def csp_finding(issue: CspIssue) -> CspFinding:
    """One violation; ``source`` is what policies call it: eval, inline, or the scheme of its URL."""
    source = _SOURCES.get(issue.kind, issue.kind)
    place = "" if issue.source is None else f" in {issue.source}"
    message = f"{issue.directive} does not allow {issue.url or source or 'this'}{place}"
    return CspFinding(message=message, url=issue.url, directive=issue.directive, source=source)


def _failure(visit: Visit) -> str | None:
    """Why a visit shows nothing to be judged, None when the document was there."""
    if visit.outcome in {PageOutcome.OK, PageOutcome.NOT_IDLE}:
        return None if any(entry.document for entry in visit.requests) else "its document was not asked for"
    return f"{visit.outcome.value}: {visit.error}" if visit.error else visit.outcome.value


def _unsettled(visit: Visit) -> str | None:
    """Why more might have been asked for than was seen, None when the page came to rest."""
    if visit.outcome is PageOutcome.NOT_IDLE:
        return "the page had not come to rest at the deadline"
    if visit.stopped:
        return "the page's scripts had to be ended"
    return visit.warnings[0] if visit.warnings else None
