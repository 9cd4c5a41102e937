"""Everything that one document asked for, while it loaded, rested, was scrolled and was left: the log that a mirror's gate stands on.

Owns how a document is probed (the waits, the viewports, a fresh context for each) and what makes a log trustworthy. It judges nothing:
which requests are leaks is the business of whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs

from forage.browser.options import is_seconds
from forage.browser.page_options import PageOptions, rules_of
from forage.browser.request_log import BrowserFacts, CspIssue, PageOutcome, RequestEntry, RequestOutcome, Viewport
from forage.browser.visit import Visit, visit_page
from forage.egress import ProxyLimits, ProxyRules
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.browser.browser import Browser
    from forage.egress import Dialer, Resolver

__all__ = ["ProbeOptions", "RequestLog", "probe_document"]

_LONGEST: Final = 3_600.0


def _viewports(value: Iterable[Viewport]) -> tuple[Viewport, ...]:
    return tuple(value)


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _some(_: object, field: attrs.Attribute[Any], value: tuple[Viewport, ...]) -> None:
    if not value:
        raise InvalidPolicyError(field.name, "at least one viewport")


@attrs.frozen(kw_only=True)
class ProbeOptions:
    """How a document is probed. Times in seconds. Raises InvalidPolicyError.

    ``egress``: what it may reach; ``only(origin)`` of `forage.egress` is a mirror's. ``abort_hosts`` are refused with all below them, and
    told as aborted. ``viewports``: one render in a fresh context for each; the requests of all of them count.

    ``min_wait`` before a page can be at rest, for timers that fire late; ``quiet`` without an event; ``deadline`` for both;
    ``answer_seconds`` as in `PageOptions`.
    """

    egress: ProxyRules = attrs.field(factory=ProxyRules, converter=rules_of)
    abort_hosts: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    limits: ProxyLimits = attrs.field(factory=ProxyLimits)
    resolver: Resolver | None = None
    dialer: Dialer | None = None
    viewports: tuple[Viewport, ...] = attrs.field(default=(Viewport(),), converter=_viewports, validator=_some)
    min_wait: float = attrs.field(default=4.0, validator=is_seconds(_LONGEST, zero=True))
    quiet: float = attrs.field(default=0.5, validator=is_seconds(_LONGEST, zero=True))
    deadline: float = attrs.field(default=30.0, validator=is_seconds(_LONGEST))
    answer_seconds: float = attrs.field(default=2.0, validator=is_seconds(_LONGEST))
    max_requests: int = 20_000

    def page(self, viewport: Viewport, *, program_fetches_icons: bool) -> PageOptions:
        """The options of one of its renders."""
        return PageOptions(
            egress=attrs.evolve(self.egress, refuse_hosts=(*self.egress.refuse_hosts, *self.abort_hosts)),
            limits=self.limits,
            resolver=self.resolver,
            dialer=self.dialer,
            viewport=viewport,
            deadline=self.deadline,
            min_wait=self.min_wait,
            quiet=self.quiet,
            answer_seconds=self.answer_seconds,
            scroll=True,
            teardown=True,
            name_https=True,
            read_html=False,
            read_console=False,
            find_icons=not program_fetches_icons,
            max_requests=self.max_requests,
        )


@attrs.frozen(kw_only=True)
class RequestLog:
    """What the renders of one document asked for. ``visits`` has each of them whole, in the order of the viewports."""

    url: str
    visits: tuple[Visit, ...]

    @property
    def requests(self) -> tuple[RequestEntry, ...]:
        """The requests of all renders, numbered anew; each names its viewport."""
        entries = (entry for visit in self.visits for entry in visit.requests)
        return tuple(attrs.evolve(entry, number=number) for number, entry in enumerate(entries, 1))

    @property
    def outcome(self) -> PageOutcome:
        """``ok`` when every render ended well, else that of the first one that did not."""
        return next((visit.outcome for visit in self.visits if visit.outcome is not PageOutcome.OK), PageOutcome.OK)

    @property
    def error(self) -> str | None:
        return next((visit.error for visit in self.visits if visit.outcome is not PageOutcome.OK), None)

    @property
    def browser(self) -> BrowserFacts | None:
        return self.visits[0].browser

    @property
    def csp(self) -> tuple[CspIssue, ...]:
        """Violations of content security policies, each once."""
        return tuple(dict.fromkeys(issue for visit in self.visits for issue in visit.csp))

    @property
    def left_for(self) -> tuple[str, ...]:
        """Where the document tried to go by itself; refused, and never asked for."""
        return tuple(dict.fromkeys(url for visit in self.visits for url in visit.left_for))

    @property
    def loaded(self) -> bool:
        """True when in every render the document's own request, its first hop, was seen in both logs and answered."""
        return all(any(_is_answered_document(entry) for entry in visit.requests) for visit in self.visits)

    @property
    def unexplained(self) -> tuple[RequestEntry, ...]:
        """Tunnels that no request explains: the document made the browser ask past everything that it tells. Never clean."""
        return tuple(entry for entry in self.requests if entry.method == "CONNECT")


def _is_answered_document(entry: RequestEntry) -> bool:
    return entry.document and entry.at_guard and entry.outcome is RequestOutcome.ANSWERED


async def probe_document(browser: Browser, url: str, options: ProbeOptions | None = None) -> RequestLog:
    """Render ``url`` at each viewport and tell what it asked for. Raises nothing of its own: failures are outcomes."""
    options = options or ProbeOptions()
    full = browser.facts.kind == "full"
    visits = [await visit_page(browser, url, options.page(viewport, program_fetches_icons=full)) for viewport in options.viewports]
    return RequestLog(url=url, visits=tuple(visits))
