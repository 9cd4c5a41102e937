"""One page in its own context: the sessions of its frames and workers, what they tell, and what is answered at once.

Owns the routing of events to the observers, the reactions that must not wait (dialogs, navigations, windows, crashes), and the end of the
page by any of them. Everything here is called from the task that reads from the browser, except the few methods that wait. What is read
of a page, and in which order, is ``visit``'s business.

A page is hostile: whatever it makes the browser tell is bounded, and an event that cannot be handled ends this page and no other.

Above 300 lines, as all reactions share the state of one page and none may wait for another module.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from forage.browser.cdp import Call, JsonObject
from forage.browser.errors import CommandRefusedError
from forage.browser.idle import ECHOES_OF_REST, IdleRule
from forage.browser.navigation import Navigation
from forage.browser.notes import PageNotes
from forage.browser.observer import RequestObserver
from forage.browser.request_log import PageOutcome, RequestOutcome
from forage.browser.sessions import set_up_commands
from forage.browser.union import NamedRequest
from forage.browser.wording import text_of
from forage.errors import EgressDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forage.browser.connection import CdpConnection
    from forage.browser.page_options import PageOptions
    from forage.egress import JudgedUrl, ProxyEvent

__all__ = ["GIVEN_UP", "Page"]

_log = logging.getLogger("forage.browser")

_BUSY_SECONDS: Final = 0.5
_IS_DOWNLOAD: Final = "it is a download"
_NO_DOCUMENT: Final = (204, 205, 304)
GIVEN_UP: Final = "net::ERR_ABORTED"
"""The browser's words for an answer that is no document."""

_MOST_DIALOGS: Final = 20
_MOST_WINDOWS: Final = 10
_MOST_SESSIONS: Final = 500
_KINDS: Final = {"iframe": "frame"}
_WORKERS: Final = frozenset(["worker", "shared_worker", "service_worker"])


class Page:
    """A page that is open. ``scope`` is around all that is done with it; `end` cancels it, once, and says why in ``outcome``.

    ``under_way``: it has been sent to its document. ``left`` is set once it shows another document because it was told to go.
    """

    def __init__(self, connection: CdpConnection, options: PageOptions, *, context: str, why_crashed: Callable[[], str | None]) -> None:
        self._connection = connection
        self._options = options
        self._why_crashed = why_crashed
        self.context = context
        self.scope = trio.CancelScope()
        self.outcome: PageOutcome | None = None
        self.error: str | None = None
        self.root: str | None = None
        self.requests = RequestObserver(most=options.max_requests)
        self.notes = PageNotes()
        self.navigation = Navigation(options.egress.policy)
        self.named: list[NamedRequest] = []
        self.decisions: list[ProxyEvent] = []
        self.warnings: list[str] = []
        self._kinds: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        self._set_up: list[Call] = []
        self._attached = trio.Event()
        self._idle = IdleRule(quiet=options.quiet)
        self._downloads = trio.Event()
        self._stands = (False, False)
        self._changed = trio.Event()
        self._silenced = False
        self._left_early = False
        self.under_way = False
        self.left = trio.Event()
        self._reactions: dict[str, Callable[[JsonObject, str], None]] = {
            "Target.attachedToTarget": self._attached_below,
            "Target.detachedFromTarget": self._detached,
            "Page.javascriptDialogOpening": self._dialog,
            "Page.frameNavigated": self._frame_navigated,
            "Page.frameRequestedNavigation": self._frame_asked,
            "Page.frameStoppedLoading": self._frame_stopped,
            "Inspector.targetCrashed": self._crashed,
            "Forage.oversized": self._oversized,
            "Fetch.requestPaused": self._paused,
        }

    def begin_download(self, params: JsonObject) -> None:
        """What came is for a file, and refused. Told by the browser's own session."""
        self.notes.begin_download(params)
        if params.get("frameId") == self.notes.root and self.navigation.shown is None:
            self.navigation.fail(_IS_DOWNLOAD)
            self._update_idle()
            self._downloads.set()

    async def told_of_download(self) -> None:
        """Wait until the browser has told what it refused to save, which it does a moment after it has given up the document for it."""
        document = None if self.navigation.request_id is None else self.requests.latest(self.navigation.request_id)
        if self.navigation.shown is None and document is not None and document.status not in (None, *_NO_DOCUMENT):
            with trio.move_on_after(_BUSY_SECONDS):
                await self._downloads.wait()

    # the end

    def end(self, outcome: PageOutcome, error: str | None = None) -> None:
        """Stop whatever is done with the page; the first reason counts."""
        if self.outcome is None:
            self.outcome, self.error = outcome, error
            self.scope.cancel()

    def close(self) -> None:
        """Forget all sessions; what they still say is dropped."""
        for session in self._kinds:
            self._connection.unroute(session)

    def set_out(self, url: JudgedUrl) -> None:
        """It is about to be sent to its document."""
        self.under_way = True
        self.navigation.begin(url)

    # sessions

    def attach(self, session: str, info: JsonObject) -> None:
        """A frame, worker or window of this page, which waits to be let go."""
        if len(self._kinds) >= _MOST_SESSIONS:
            self.end(PageOutcome.EGRESS_LIMIT, f"more than {_MOST_SESSIONS} frames and workers")
            return
        kind, target = text_of(info, "type"), text_of(info, "targetId")
        root = self.root is None and kind == "page"
        if root:
            self.root, self.notes.root = session, target
            self.notes.frames.add(target)
        named = "popup" if kind == "page" and not root else _KINDS.get(kind, kind)
        self._kinds[session] = "page" if root else named
        self._targets[session] = target
        self.notes.frames.add(target)
        self._connection.route(session, self.handle)
        options = self._options
        commands = set_up_commands(
            kind,
            root=root,
            viewport=options.viewport,
            user_agent=options.user_agent,
            max_dom=options.max_dom_bytes if options.read_html else None,
        )
        calls = [self._connection.post(method, params, session) for method, params in commands]
        if root:
            self._set_up = calls
            self._attached.set()
        elif named == "popup" and sum(kind == "popup" for kind in self._kinds.values()) > _MOST_WINDOWS:
            self._connection.post("Target.closeTarget", {"targetId": target})

    async def attached(self) -> None:
        """Wait until the root session is there."""
        await self._attached.wait()

    async def set_up(self) -> None:
        """Wait until all events of the root session are on: navigating before would lose requests. Raises BrowserError.

        One that waits with its document answers nothing before that has come.
        """
        for call in self._set_up:
            try:
                await self._connection.answer(call)
            except CommandRefusedError as exc:
                if exc.method in ("Network.enable", "Target.setAutoAttach", "Page.enable", "Fetch.enable"):
                    raise

    async def call(self, method: str, params: JsonObject | None = None, *, seconds: float) -> JsonObject:
        """A command on the root session. Raises BrowserError."""
        return await self._connection.call(method, params, self.root, seconds=seconds)

    def post(self, method: str, params: JsonObject | None = None) -> Call:
        """A command on the root session, put in line; `answer` waits for it."""
        return self._connection.post(method, params, self.root)

    async def answer(self, call: Call, *, seconds: float) -> JsonObject:
        """The answer to a posted command. Raises BrowserError."""
        return await self._connection.answer(call, seconds=seconds)

    async def is_browser_busy(self) -> bool:
        """Whether the browser itself takes long to answer, whatever the page does. Raises BrowserError."""
        asked = trio.current_time()
        await self._connection.call("Browser.getVersion")
        return trio.current_time() - asked > _BUSY_SECONDS

    def owns_frame(self, frame: str) -> bool:
        """Whether a frame, worker or window of this number is this page's."""
        return frame in self.notes.frames

    # events

    def handle(self, method: str, params: JsonObject, session: str | None) -> None:
        """One event of one of its sessions."""
        try:
            self._handle(method, params, session or "")
        except Exception as exc:  # noqa: BLE001 - one page must not end the reader of all
            _log.error("an event could not be read: %s", method, exc_info=exc)
            self.end(PageOutcome.FAILED, f"{method} could not be read")

    def _handle(self, method: str, params: JsonObject, session: str) -> None:
        if method != "Page.lifecycleEvent" or params.get("name") not in ECHOES_OF_REST:
            self._idle.last_event = trio.current_time()
        kind = self._kinds.get(session, "page")
        if self.requests.observe(method, params, kind, session):
            self._requests_changed(method, params, kind, session)
        else:
            self.notes.observe(method, params)
            react = self._reactions.get(method)
            if react is not None:
                react(params, session)
        self._update_idle()

    def _requests_changed(self, method: str, params: JsonObject, kind: str, session: str) -> None:
        if self.requests.overflow:
            self.end(PageOutcome.EGRESS_LIMIT, f"more than {self._options.max_requests} requests")
        if method == "Network.loadingFailed" and text_of(params, "requestId") == self.navigation.request_id:
            self.navigation.fail(text_of(params, "errorText"))
        if kind == "popup" and method == "Network.requestWillBeSent" and params.get("type") == "Document":
            # Seen and logged; what a window does next is of no use to the page that is being read.
            self._connection.post("Target.closeTarget", {"targetId": self._targets[session]})

    def _attached_below(self, params: JsonObject, session: str) -> None:
        info: Any = params.get("targetInfo")
        if isinstance(info, dict):
            self.attach(text_of(params, "sessionId"), info)

    def _detached(self, params: JsonObject, session: str) -> None:
        self.requests.end_session(text_of(params, "sessionId"))

    def _dialog(self, params: JsonObject, session: str) -> None:
        leaving = params.get("type") == "beforeunload"
        self._connection.post("Page.handleJavaScriptDialog", {"accept": leaving}, session)
        if len(self.notes.dialogs) > _MOST_DIALOGS and not self._silenced:
            self._silenced = True
            self.warnings.append(f"dialogs: more than {_MOST_DIALOGS}; its scripts were stopped")
            self._connection.post("Emulation.setScriptExecutionDisabled", {"value": True}, session)
            self._connection.post("Page.stopLoading", None, session)

    def _crashed(self, params: JsonObject, session: str) -> None:
        why = self._why_crashed()
        if session == self.root or why is not None:
            self.end(PageOutcome.CRASHED, why or "its process ended")
            return
        if not (self.navigation.over and self._kinds.get(session) in _WORKERS):  # the program ends those that no page needs any more
            self.warnings.append("frame-crashed: a frame of the page crashed")
        self.requests.end_session(session)

    def _oversized(self, params: JsonObject, session: str) -> None:
        self.end(PageOutcome.TOO_LARGE, f"it made the browser write a message of {params.get('size')} bytes")

    def _frame_navigated(self, params: JsonObject, session: str) -> None:
        if self.notes.bad_scheme is not None:
            self.end(PageOutcome.SCHEME, f"a frame shows {self.notes.bad_scheme}:")
        frame: Any = params.get("frame")
        if isinstance(frame, dict) and frame.get("id") == self.notes.root:
            self.navigation.commit(text_of(frame, "loaderId"), text_of(frame, "url"))
            if self.navigation.over:
                self.left.set()

    def _frame_stopped(self, params: JsonObject, session: str) -> None:
        """The browser gives up what is left of a document that tries to leave while it is being read; there is no load event then.

        It stops without one, too, where the answer is none to show: status 204, or a download.
        """
        navigation = self.navigation
        if params.get("frameId") == self.notes.root and navigation.request_id is not None and navigation.shown is None:
            if navigation.error is None:
                navigation.fail(GIVEN_UP)
            return
        gave_up = navigation.shown is not None and navigation.left_for and navigation.shown not in self.notes.loaded
        if gave_up and params.get("frameId") == self.notes.root and not self._left_early:
            self._left_early = True
            self.warnings.append("left-early: it tried to leave before it was loaded; the browser did not read the rest of it")

    def _frame_asked(self, params: JsonObject, session: str) -> None:
        """An attempt to leave. It may be given up for the next one before it becomes a request."""
        if params.get("frameId") == self.notes.root and params.get("disposition") == "currentTab":
            self.navigation.ask(text_of(params, "url"))

    def _paused(self, params: JsonObject, session: str) -> None:
        """A request for a document, before it is made. It waits until it is answered, so it is answered here."""
        request_id, network_id = text_of(params, "requestId"), text_of(params, "networkId")
        if session != self.root or params.get("frameId") != self.notes.root:
            self._connection.post("Fetch.continueRequest", {"requestId": request_id}, session)
            return
        request: Any = params.get("request")
        reason = self.navigation.judge(network_id, text_of(request, "url") if isinstance(request, dict) else "")
        if reason is None:
            self._connection.post("Fetch.continueRequest", {"requestId": request_id}, session)
            return
        # Aborted, and no other reason: for any other one the browser would show a page of its own in the place of this one.
        self._connection.post("Fetch.failRequest", {"requestId": request_id, "errorReason": "Aborted"}, session)
        hop = self.requests.latest(network_id)
        if hop is not None:
            hop.refused = RequestOutcome.NAVIGATION if reason == "navigation" else RequestOutcome.REFUSED

    def paused_at_browser(self, params: JsonObject) -> bool:
        """An https request of any of its frames or workers, before it is made: named here, and True when it may be made."""
        request: Any = params.get("request")
        if not isinstance(request, dict):
            return True
        url, method = text_of(request, "url"), text_of(request, "method")
        rules = self._options.egress
        outcome = RequestOutcome.OPEN
        try:
            rules.admit(self.navigation.judged(url))
        except EgressDeniedError as exc:
            outcome = RequestOutcome.ABORTED if rules.is_aborted(exc.host) else RequestOutcome.REFUSED
        if len(self.named) < self._options.max_requests:
            row = NamedRequest(method=method, url=url, resource_type=text_of(params, "resourceType") or None, outcome=outcome)
            self.named.append(row)
        return outcome is RequestOutcome.OPEN

    def decided(self, event: ProxyEvent) -> None:
        """A decision of the guard, or the end of a request that it let through."""
        if len(self.decisions) >= 4 * self._options.max_requests:
            self.end(PageOutcome.EGRESS_LIMIT, "more requests at the guard than are kept")
            return
        self.decisions.append(event)
        if event.event == "end" and event.outcome == "complete" and event.method != "CONNECT":
            self.requests.arrived(event.method, event.url)
            self._update_idle()
        if event.code == "LIMIT" or event.outcome == "limit":
            self.end(PageOutcome.EGRESS_LIMIT, f"it used up what it may use ({event.rule or 'limit'})")

    # coming to rest

    def _update_idle(self) -> None:
        rule, navigation = self._idle, self.navigation
        over = navigation.shown in self.notes.loaded or navigation.cut or self._silenced or self._left_early
        rule.loaded = navigation.shown is not None and over
        rule.in_flight = self.requests.in_flight
        stands = rule.due() is not None, navigation.error is not None
        if stands != self._stands:
            self._stands = stands
            self._changed.set()

    async def rest(self, min_wait: float) -> None:
        """Wait until the page has come to rest, at least ``min_wait`` seconds from now; at once when its document cannot be had."""
        self._idle.not_before = trio.current_time() + min_wait
        while self.navigation.error is None:
            due = self._idle.due()
            self._changed = trio.Event()
            with trio.move_on_at(float("inf") if due is None else due):
                await self._changed.wait()
            due = self._idle.due()
            if due is not None and due <= trio.current_time():
                return

    def expect_events(self) -> None:
        """What is done now will make the page do something: it is not at rest until it has been quiet once more."""
        self._idle.last_event = trio.current_time()
