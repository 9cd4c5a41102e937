"""Which documents the root frame of a page may load: the one that was asked for, its redirects, and no other (pure).

Owns the judgement of redirects, which is the guard's (a page is not to be shown under the name of another host), and the list of
places where the page tried to go by itself. Those are never asked for: the page that was asked for stays, and is what is read.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

from forage.egress import EgressPolicy, JudgedUrl, RedirectChain, judge_redirect, judge_url
from forage.errors import EgressDeniedError

__all__ = ["Navigation"]

_MOST: Final = 200
_OWN_ERROR_PAGE: Final = "chrome-error:"


@attrs.frozen
class _RedirectHead:
    """A redirect as the guard's rule reads it. The browser has settled status and method; only where it leads is judged."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class Navigation:
    """The document of a page. ``request_id`` is its request, ``shown`` its loader once it has been committed, ``error`` why it has not,
    ``cut`` that it broke off later.

    ``code`` is the guard's, for a redirect that it refused. ``left_for`` are the places where the page tried to go.
    """

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._chain: RedirectChain | None = None
        self.over = False
        self.request_id: str | None = None
        self.shown: str | None = None
        self.cut = False
        self.error: str | None = None
        self.code: str | None = None
        self.left_for: list[str] = []

    def judged(self, url: str) -> JudgedUrl:
        """The verdict of the policy. Raises EgressDeniedError."""
        return judge_url(url, self._policy)

    def begin(self, url: JudgedUrl) -> None:
        """The page is about to be sent there."""
        self._chain = RedirectChain.begin(url, self._policy)

    def finish(self) -> None:
        """The page is being left: what it shows from now on is no document of it."""
        self.over = True

    def fail(self, error: str) -> None:
        """The document cannot be had. Words of ours say more than the browser's."""
        self.cut = self.shown is not None
        if self.shown is None and (self.error is None or self.error.startswith("net::")):
            self.error = error or "net::ERR_FAILED"

    def commit(self, loader: str, url: str) -> None:
        """The root frame shows another document."""
        if self.over or url.startswith(_OWN_ERROR_PAGE):
            return
        if self.shown is None and loader == self.request_id:
            self.shown = loader
        elif self.shown is not None and loader != self.shown:
            # Without a request, so that it could not be refused: about:blank, or what the page made itself.
            self._note(url)
            self.shown = loader

    def ask(self, url: str) -> None:
        """The page that is shown wants to go there."""
        if self.shown is not None and not self.over:
            self._note(url)

    def judge(self, request_id: str, url: str) -> Literal["navigation", "redirect"] | None:
        """What a request for a document of the root frame is refused as, None when it may be made."""
        if self.error is not None:
            return "navigation"  # the browser's page about a failure asks again by itself
        if self._chain is None or self.shown is not None or self.request_id not in (None, request_id):
            self._note(url)
            return "navigation"
        if self.request_id is None:
            self.request_id = request_id
            return None
        head = _RedirectHead(302, ((b"location", url.encode()),))
        try:
            redirect = judge_redirect(self._chain, head)
            if redirect is not None:
                redirect.refuse_repeat()
                self._chain = redirect.chain
        except EgressDeniedError as exc:
            self.error, self.code = str(exc), exc.code.value
            return "redirect"
        return None

    def _note(self, url: str) -> None:
        if len(self.left_for) < _MOST and url not in self.left_for:
            self.left_for.append(url)
