"""What a page did besides asking for things: dialogs, downloads, windows, violations, where its frames are (pure).

Owns the reading of those events and their bounds; a page may make any number of them, of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from forage.browser.cdp import JsonObject
from forage.browser.request_log import ConsoleMessage, CspIssue, Dialog, Download, Speculation
from forage.browser.wording import text_of, whole

__all__ = ["PageNotes"]

_MOST: Final = 500
_LONGEST_TEXT: Final = 1_000
_LONGEST_URL: Final = 16_384
# What a frame may show. Anything else was opened past the rules; the browser's own page about a failure is not a page's doing.
_SHOWN: Final = ("http:", "https:", "about:", "data:", "blob:", "chrome-error:", "javascript:")
_ERRORS: Final = frozenset(["error", "assert"])
_Row = TypeVar("_Row")


class PageNotes:
    """Feed it events; the lists are in order, each cut off at a bound."""

    def __init__(self) -> None:
        self.root = ""
        self.frames: set[str] = set()
        self.dialogs: list[Dialog] = []
        self.downloads: list[Download] = []
        self.windows: list[str] = []
        self.csp: list[CspIssue] = []
        self.console: list[ConsoleMessage] = []
        self.speculations: list[Speculation] = []
        self.bad_scheme: str | None = None
        self.root_urls: list[tuple[str, str]] = []
        self.loaded: set[str] = set()
        self._take: dict[str, Callable[[JsonObject], None]] = {
            "Page.frameAttached": self._frame_attached,
            "Page.frameNavigated": self._frame_navigated,
            "Page.navigatedWithinDocument": self._moved_within,
            "Page.lifecycleEvent": self._lifecycle,
            "Page.javascriptDialogOpening": self._dialog,
            "Page.windowOpen": self._window,
            "Audits.issueAdded": self._issue,
            "Log.entryAdded": self._log_entry,
            "Runtime.consoleAPICalled": self._console_line,
            "Runtime.exceptionThrown": self._exception,
            "Preload.prefetchStatusUpdated": self._prefetch,
            "Preload.prerenderStatusUpdated": self._prerender,
        }

    @property
    def url(self) -> str:
        """Where the root frame is, by the last document or history entry that it showed."""
        return self.root_urls[-1][1] if self.root_urls else ""

    def observe(self, method: str, params: JsonObject) -> None:
        """Take in one event of any session of the page."""
        take = self._take.get(method)
        if take is not None:
            take(params)

    def begin_download(self, params: JsonObject) -> None:
        """Of the browser's own session, for a frame of this page."""
        row = Download(url=text_of(params, "url")[:_LONGEST_URL], name=text_of(params, "suggestedFilename")[:_LONGEST_TEXT])
        _keep(self.downloads, row)

    # frames

    def _frame_attached(self, params: JsonObject) -> None:
        if len(self.frames) < 10 * _MOST:
            self.frames.add(text_of(params, "frameId"))

    def _frame_navigated(self, params: JsonObject) -> None:
        frame: Any = params.get("frame")
        if not isinstance(frame, dict):
            return
        frame_id, url = text_of(frame, "id"), text_of(frame, "url")
        if url and not url.startswith(_SHOWN):
            self.bad_scheme = self.bad_scheme or url.partition(":")[0][:32]
        if frame_id == self.root and len(self.root_urls) < _MOST:
            self.root_urls.append((text_of(frame, "loaderId"), url + text_of(frame, "urlFragment")))

    def _moved_within(self, params: JsonObject) -> None:
        if text_of(params, "frameId") == self.root and self.root_urls:
            self.root_urls[-1] = (self.root_urls[-1][0], text_of(params, "url"))

    def _lifecycle(self, params: JsonObject) -> None:
        if params.get("name") == "load" and text_of(params, "frameId") == self.root and len(self.loaded) < _MOST:
            self.loaded.add(text_of(params, "loaderId"))

    # doings

    def _dialog(self, params: JsonObject) -> None:
        _keep(self.dialogs, Dialog(kind=text_of(params, "type"), message=text_of(params, "message")[:_LONGEST_TEXT]))

    def _window(self, params: JsonObject) -> None:
        _keep(self.windows, text_of(params, "url")[:_LONGEST_URL])

    def _prefetch(self, params: JsonObject) -> None:
        row = Speculation(kind="prefetch", url=text_of(params, "prefetchUrl")[:_LONGEST_URL], status=text_of(params, "status"))
        _keep(self.speculations, row)

    def _prerender(self, params: JsonObject) -> None:
        key: Any = params.get("key")
        url = text_of(key, "url") if isinstance(key, dict) else ""
        _keep(self.speculations, Speculation(kind="prerender", url=url[:_LONGEST_URL], status=text_of(params, "status")))

    # what the browser says of it

    def _issue(self, params: JsonObject) -> None:
        issue: Any = params.get("issue")
        details = issue.get("details") if isinstance(issue, dict) and issue.get("code") == "ContentSecurityPolicyIssue" else None
        found = details.get("contentSecurityPolicyIssueDetails") if isinstance(details, dict) else None
        if not isinstance(found, dict):
            return
        place: Any = found.get("sourceCodeLocation")
        row = CspIssue(
            directive=text_of(found, "violatedDirective")[:_LONGEST_TEXT],
            kind=text_of(found, "contentSecurityPolicyViolationType"),
            url=text_of(found, "blockedURL")[:_LONGEST_URL] or None,
            report_only=found.get("isReportOnly") is True,
            source=text_of(place, "url")[:_LONGEST_URL] or None if isinstance(place, dict) else None,
        )
        _keep(self.csp, row)

    def _log_entry(self, params: JsonObject) -> None:
        entry: Any = params.get("entry")
        if isinstance(entry, dict):
            row = ConsoleMessage(
                level=text_of(entry, "level"),
                source=text_of(entry, "source"),
                text=text_of(entry, "text")[:_LONGEST_TEXT],
                url=text_of(entry, "url")[:_LONGEST_URL] or None,
            )
            _keep(self.console, row)

    def _console_line(self, params: JsonObject) -> None:
        kind, words = text_of(params, "type"), params.get("args")
        if kind in _ERRORS and isinstance(words, list):
            text = " ".join(_said(word) for word in words[:20] if isinstance(word, dict))
            _keep(self.console, ConsoleMessage(level="error", source="console", text=text[:_LONGEST_TEXT]))

    def _exception(self, params: JsonObject) -> None:
        details: Any = params.get("exceptionDetails")
        if not isinstance(details, dict):
            return
        thrown: Any = details.get("exception")
        text = _said(thrown) if isinstance(thrown, dict) else text_of(details, "text")
        url = text_of(details, "url")[:_LONGEST_URL] or None
        _keep(self.console, ConsoleMessage(level="error", source="javascript", text=text[:_LONGEST_TEXT], url=url))


def _said(word: JsonObject) -> str:
    """A value as the browser describes it."""
    value = word.get("value")
    return text_of(word, "description")[:_LONGEST_TEXT] or (whole(str(value)[:_LONGEST_TEXT]) if value is not None else "")


def _keep(rows: list[_Row], row: _Row) -> None:
    if len(rows) < _MOST:
        rows.append(row)
