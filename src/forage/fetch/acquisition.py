"""One acquisition: from a source to a snapshot, hop by hop.

Owns the order of a hop (robots, validators, request, redirect under the guard) and what the last answer becomes. Politeness, deadlines and
retries are the sender's; nothing is written to a store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
import trio
from ada_url import URL

from forage._codec import units
from forage.egress import EgressPolicy, JudgedUrl, Redirect, RedirectChain, forwarded_headers, judge_redirect
from forage.errors import EgressDeniedError, FetchErrorKind, InvalidSnapshotError
from forage.fetch.answer import Answer, without_query
from forage.fetch.conditional import NO_VALIDATORS, Validators, validators_of
from forage.fetch.cookies import HopCookies
from forage.fetch.politeness import WaitTooLongError
from forage.fetch.received import received_snapshot
from forage.fetch.rendering import Renderer, kept_plain, render_over, wants_render
from forage.fetch.result import FetchFailure, FetchResult, Source
from forage.fetch.robots import Robots
from forage.fetch.robots_client import ACCEPT_ENCODING
from forage.fetch.sender import Sender, Wanted, denial
from forage.fetch.settings import DEFAULT_ACCEPT, FetchSettings, Render
from forage.snapshots import MAX_URL_UNITS, Snapshot, body_bytes

__all__ = ["Acquisition", "Choices", "Tools", "Turn"]

_CONDITIONS: Final = frozenset({"if-none-match", "if-modified-since"})
_OWN: Final = frozenset({"user-agent", "accept-encoding"})
_DEFAULT_HEADERS: Final = (("Accept", DEFAULT_ACCEPT), ("Accept-Encoding", ACCEPT_ENCODING))


@attrs.frozen(kw_only=True)
class Tools:
    """What the acquisitions of one fetcher share."""

    policy: EgressPolicy
    judged: Callable[[str], JudgedUrl]
    settings: FetchSettings
    sender: Sender
    robots: Robots
    threads: trio.CapacityLimiter


@attrs.frozen(kw_only=True)
class Choices:
    """What one call may choose for itself."""

    max_response_bytes: int | None
    render: Render
    renderer: Renderer | None
    obey_robots: bool
    prior: Snapshot | None
    turn: Turn | None = None


class Turn(Protocol):
    """When an acquisition may make its first request; for a caller who wants those of several to start in an order of its own."""

    def take(self) -> bool:
        """Take the turn if it has come."""
        ...

    async def wait(self) -> None:
        """Wait for the turn, and take it."""
        ...


class _Failed(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, failure: FetchFailure) -> None:
        self.failure = failure


class Acquisition:
    """The state of one acquisition; `run` is called once."""

    def __init__(self, tools: Tools, source: Source, choices: Choices, warnings: list[str]) -> None:
        self._tools = tools
        self._source = source
        self._choices = choices
        self._warnings = warnings
        self._cookies = HopCookies()
        self._redirects: list[str] = []
        self._last_url: str | None = None
        self._left_for: tuple[str, ...] = ()
        self._requests = 0
        self._robots_notes: dict[str, None] = {}
        self._last: Answer | None = None
        self._sent_validators = NO_VALIDATORS

    async def run(self) -> FetchResult:
        """The outcome. Never raises for operational trouble."""
        began = trio.current_time()
        snapshot, error = None, None
        try:
            snapshot = await self._acquire()
        except _Failed as exc:
            error = exc.failure
        last = self._last
        return FetchResult(
            source_id=self._source.id,
            url=self._source.url,
            snapshot=snapshot,
            error=error,
            warnings=tuple(self._warnings),
            redirects=tuple(self._redirects),
            last_url=self._last_url,
            left_for=self._left_for,
            facts=None if last is None else last.facts,
            raw_headers=None if last is None or last.status is None else last.headers,
            requests=self._requests,
            seconds=trio.current_time() - began,
        )

    async def _acquire(self) -> Snapshot:
        chain, fragment = self._begin()
        headers = self._first_headers()
        while True:
            _refuse_long(chain.current.url + fragment)
            await self._ask_robots(chain.current)
            if (turn := self._choices.turn) is not None and not turn.take():
                await turn.wait()
            answer = await self._send(chain.current, headers)
            redirect = self._redirect(chain, answer)
            if redirect is None:
                return await self._finish(chain.current.url + fragment, answer)
            self._redirects.append(chain.current.url + fragment)
            fragment = _fragment(answer.location or "", chain.current.url)
            headers = self._without_conditions(forwarded_headers(headers, redirect))
            chain = redirect.chain

    def _begin(self) -> tuple[RedirectChain, str]:
        try:
            target = self._tools.judged(self._source.url)
        except EgressDeniedError as exc:
            raise _Failed(denial(exc)) from exc
        return RedirectChain.begin(target, self._tools.policy), _fragment(self._source.url, None)

    def _first_headers(self) -> tuple[tuple[str, str], ...]:
        if not self._source.headers:
            return (("User-Agent", self._user_agent), *_DEFAULT_HEADERS)
        caller = [(name, value) for name, value in self._source.headers.items() if name.lower() not in _OWN]
        headers = [("User-Agent", self._user_agent)]
        if all(name.lower() != "accept" for name, _ in caller):
            headers.append(("Accept", DEFAULT_ACCEPT))
        own = [(name, value) for name, value in self._source.headers.items() if name.lower() == "accept-encoding"]
        return (*headers, *(own or [("Accept-Encoding", ACCEPT_ENCODING)]), *caller)

    @property
    def _user_agent(self) -> str:
        return self._source.user_agent or self._tools.settings.user_agent

    async def _ask_robots(self, target: JudgedUrl) -> None:
        if not self._choices.obey_robots:
            return
        decision = await self._tools.robots.decide(target.origin, target.target, self._user_agent)
        for note in decision.warnings:
            if note not in self._robots_notes:  # the next hop of the same host need not repeat them
                self._robots_notes[note] = None
                self._warnings.append(note)
        clock = await self._tools.sender.clock(target)
        clock.set_crawl_delay(target.origin, decision.crawl_delay)
        longest = self._tools.settings.max_crawl_delay
        if decision.crawl_delay is not None and decision.crawl_delay > longest:
            self._note_once(f"crawl-delay: {target.origin} asks for {decision.crawl_delay:g} s between requests, more than {longest:g} s")
        if decision.kind is not None:
            target_url = target.url if self._redirects else None
            raise _Failed(
                FetchFailure(
                    kind=decision.kind,
                    message=decision.message,
                    reason=decision.reason,
                    target=target_url,
                    retry_after=decision.retry_after,
                )
            )

    def _note_once(self, note: str) -> None:
        if note not in self._warnings:
            self._warnings.append(note)

    async def _send(self, target: JudgedUrl, headers: tuple[tuple[str, str], ...]) -> Answer:
        validators = validators_of(self._choices.prior, target.url)
        if validators:
            headers = (*self._without_conditions(headers), *validators.headers)
        self._sent_validators = validators
        keep_errors = self._tools.settings.keep_error_bodies
        self._last_url = target.url
        wanted = Wanted(of=_is_page_or_error if keep_errors else _is_page, limit=self._choices.max_response_bytes)
        answer, sent = await self._tools.sender.send(
            target, self._with_cookies(target, headers), wanted, page=True, warnings=self._warnings
        )
        self._requests += sent
        self._last = answer
        self._warnings += answer.warnings
        if answer.failure is not None:
            raise _Failed(answer.failure)
        if self._tools.settings.cookies and b"set-cookie" in answer.fields:
            self._cookies.receive(target.origin, target.host, target.target.partition("?")[0], answer.values("set-cookie"))
        return answer

    @staticmethod
    def _without_conditions(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, value) for name, value in headers if name.lower() not in _CONDITIONS)

    def _with_cookies(self, target: JudgedUrl, headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        cookie = self._cookies.header(target.origin, target.target.partition("?")[0]) if self._cookies else None
        if cookie is None:
            return headers
        own = [value for name, value in headers if name.lower() == "cookie"]
        rest = tuple((name, value) for name, value in headers if name.lower() != "cookie")
        return (*rest, ("Cookie", "; ".join([*own, cookie])))

    def _redirect(self, chain: RedirectChain, answer: Answer) -> Redirect | None:
        try:
            redirect = judge_redirect(chain, answer.head)
            if redirect is not None:
                redirect.refuse_repeat()
        except EgressDeniedError as exc:
            failure = denial(exc)
            # The whole target, query and all, for whoever decides to go there: it is data of the result, not text of a message.
            target = _resolved(answer.location or "", chain.current.url) or failure.target
            raise _Failed(attrs.evolve(failure, target=target)) from exc
        return redirect

    async def _finish(self, url: str, answer: Answer) -> Snapshot:
        status = answer.status
        assert status is not None
        if status == 304 and self._sent_validators and self._choices.prior is not None:
            plain = self._not_modified(self._choices.prior, self._sent_validators, answer)
        elif 200 <= status <= 299:
            plain = await self._snapshot(url, answer)
        else:
            raise _Failed(await self._http_error(url, answer))
        snapshot = await self._rendered(plain)
        limit = self._choices.max_response_bytes
        if limit is not None and _measure(snapshot) > limit:
            raise _Failed(_too_large(url, limit, status))
        return snapshot

    def _not_modified(self, prior: Snapshot, validators: Validators, answer: Answer) -> Snapshot:
        etag = answer.header("etag")
        if etag is not None and validators.etag is not None and etag != validators.etag:
            self._warnings.append("etag-changed-on-304: the answer names another entity tag than the one that was asked about")
        return attrs.evolve(prior, not_modified=True)

    async def _snapshot(self, url: str, answer: Answer) -> Snapshot:
        try:
            snapshot, notes = await received_snapshot(
                answer,
                url=url,
                source_id=self._source.id,
                fetched_at=self._tools.settings.utc_now(),
                redirects=tuple(self._redirects),
                threads=self._tools.threads,
            )
        except InvalidSnapshotError as exc:
            too_large = str(exc).startswith("body")
            kind = FetchErrorKind.RESPONSE_TOO_LARGE if too_large else FetchErrorKind.INVALID_URL
            raise _Failed(FetchFailure(kind=kind, message=f"cannot be kept: {exc}", status=answer.status)) from exc
        self._warnings += notes
        return snapshot

    async def _http_error(self, url: str, answer: Answer) -> FetchFailure:
        status = answer.status or 0
        said = "answered 304 although nothing was asked conditionally" if status == 304 else f"answered HTTP {status}"
        if 300 <= status <= 399 and status != 304:
            said += " with nowhere to go"
        keep = self._tools.settings.keep_error_bodies and status >= 400
        longest = self._tools.settings.max_retry_wait
        too_long = answer.retry_after is not None and answer.retry_after > longest
        return FetchFailure(
            kind=FetchErrorKind.HTTP_ERROR,
            message=f"{without_query(url)} {said}",
            status=status,
            reason="retry-after-too-long" if too_long else None,
            retry_after=answer.retry_after,
            page=await self._snapshot(url, answer) if keep else None,
        )

    async def _rendered(self, plain: Snapshot) -> Snapshot:
        if not wants_render(self._choices.render, plain):
            return plain
        target = self._tools.judged(self._source.url)
        # The browser asks the host again: it waits for its turn as every request does, and holds the host's slot meanwhile.
        seconds = self._tools.settings.render_seconds
        clock = await self._tools.sender.clock(target)
        try:
            async with clock.request():
                rendering = await render_over(self._choices.renderer, target.url, plain, seconds=seconds)
        except WaitTooLongError as exc:
            rendering = kept_plain(plain, f"render-failed: {exc}")
        self._warnings += rendering.warnings
        self._left_for = rendering.left_for
        return rendering.snapshot


def _is_page(status: int) -> bool:
    return 200 <= status <= 299


def _is_page_or_error(status: int) -> bool:
    return 200 <= status <= 299 or status >= 400


def _resolved(location: str, base: str) -> str | None:
    """The target of a redirect as a URL; None for what is none or holds credentials, which go nowhere."""
    try:
        parsed = URL(location, base)
    except ValueError:
        return None
    return None if parsed.username or parsed.password else parsed.href


def _fragment(text: str, base: str | None) -> str:
    """The fragment with its mark. Records keep it, as they always have; it is never sent."""
    if "#" not in text:
        return ""
    try:
        return URL(text, base).hash if base is not None else URL(text).hash
    except ValueError:
        return ""


def _refuse_long(url: str) -> None:
    """What could not be kept is not asked for."""
    if len(url) * 2 > MAX_URL_UNITS and units(url) > MAX_URL_UNITS:
        message = f"the URL is longer than the {MAX_URL_UNITS} UTF-16 units that a snapshot can name"
        raise _Failed(FetchFailure(kind=FetchErrorKind.INVALID_URL, message=message))


def _measure(snapshot: Snapshot) -> int:
    return len(body_bytes(snapshot))


def _too_large(url: str, limit: int, status: int) -> FetchFailure:
    return FetchFailure(kind=FetchErrorKind.RESPONSE_TOO_LARGE, message=f"{without_query(url)} is larger than {limit} bytes", status=status)
