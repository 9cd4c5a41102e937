"""Asks for one robots.txt: retries, redirects under the guard, the first 500 KiB and no more.

Redirects are followed across hosts, as RFC 9309 section 2.3.1.2 asks, whatever the policy says of pages: the rules then apply to the
authority that was asked first. Each hop is judged as any URL is, and https never leads to http: rules that anybody on the path can write
must not govern a host that is reached securely.
"""

from __future__ import annotations

from typing import Final

import attrs

from forage.egress import EgressPolicy, RedirectChain, judge_redirect, judge_url
from forage.errors import EgressCode, EgressDeniedError, FetchErrorKind
from forage.fetch.answer import Answer
from forage.fetch.conditional import sendable
from forage.fetch.result import FetchFailure
from forage.fetch.robots_outcome import RobotsEntry, RobotsReply
from forage.fetch.robots_rules import MAX_ROBOTS_BYTES
from forage.fetch.sender import Sender, Wanted, denial
from forage.fetch.settings import FetchSettings

__all__ = ["ACCEPT_ENCODING", "RobotsClient"]

ACCEPT_ENCODING: Final = "gzip, br, zstd"

_MAX_REDIRECTS = 5
# No limit but the cut: a file that declares a gigabyte is still read as far as the RFC asks.
_WANTED = Wanted(of=lambda status: 200 <= status <= 299, limit=2**53 - 1, cut=MAX_ROBOTS_BYTES + 1)
_UNFOLLOWABLE = frozenset({EgressCode.REDIRECT_LIMIT, EgressCode.REDIRECT_LOOP, EgressCode.REDIRECT_INVALID})


class RobotsClient:
    """`ask` is the `AskRobots` of a fetcher."""

    def __init__(self, sender: Sender, policy: EgressPolicy, settings: FetchSettings) -> None:
        self._sender = sender
        self._policy = attrs.evolve(policy, redirect_hosts="any", max_redirects=_MAX_REDIRECTS)
        self._settings = settings

    async def ask(self, url: str, held: RobotsEntry | None) -> RobotsReply:
        """What asking for the file at ``url`` led to. Never raises for operational trouble."""
        warnings: list[str] = []
        try:
            chain = RedirectChain.begin(judge_url(url, self._policy), self._policy)
        except EgressDeniedError as exc:
            return _refused(exc, warnings)
        headers = self._headers(held)
        while True:
            answer, _ = await self._sender.send(chain.current, headers, _WANTED, page=False, warnings=warnings)
            if (answer.failure is not None and not answer.sent) or answer.status is None:
                return _failed(answer, warnings, at_start=len(chain.hops) == 1)
            try:
                redirect = judge_redirect(chain, answer.head)
                if redirect is None:
                    return _reply(answer, warnings)
                redirect.refuse_repeat()
            except EgressDeniedError as exc:
                return _refused(exc, warnings)
            chain = redirect.chain
            headers = self._headers(None)

    def _headers(self, held: RobotsEntry | None) -> tuple[tuple[str, str], ...]:
        headers = [
            ("User-Agent", self._settings.user_agent),
            ("Accept", "text/plain,*/*"),
            ("Accept-Encoding", ACCEPT_ENCODING),
        ]
        if held is not None and held.fetched_at is not None:
            kept = (("If-None-Match", sendable(held.etag)), ("If-Modified-Since", sendable(held.last_modified)))
            headers += [(name, value) for name, value in kept if value is not None]
        return tuple(headers)


def _reply(answer: Answer, warnings: list[str]) -> RobotsReply:
    failure = answer.failure
    return RobotsReply(
        status=None if failure is not None else answer.status,
        body=answer.body or b"",
        etag=answer.header("etag"),
        last_modified=answer.header("last-modified"),
        problem=None if failure is None else _problem(failure),
        unfollowable=failure is None and answer.status is not None and 300 <= answer.status <= 399 and answer.status != 304,
        retry_after=answer.retry_after,
        warnings=tuple(warnings),
    )


def _failed(answer: Answer, warnings: list[str], *, at_start: bool) -> RobotsReply:
    failure = answer.failure
    assert failure is not None
    refused = failure.kind is FetchErrorKind.EGRESS_DENIED
    return RobotsReply(
        problem=_problem(failure),
        refused=refused,
        denied=failure if at_start and (refused or failure.kind is FetchErrorKind.HOST_PAUSED) else None,
        retry_after=failure.retry_after,
        warnings=tuple(warnings),
    )


def _problem(failure: FetchFailure) -> str:
    return f"could not be had ({failure.kind}: {failure.message})"


def _refused(exc: EgressDeniedError, warnings: list[str]) -> RobotsReply:
    if exc.code in _UNFOLLOWABLE:
        code = "robots-redirect-invalid" if exc.code is EgressCode.REDIRECT_INVALID else "robots-redirect-limit"
        note = f"{code}: the redirects of robots.txt lead nowhere ({exc.code})"
        return RobotsReply(problem="has a redirect that leads nowhere", unfollowable=True, warnings=(*warnings, note))
    return RobotsReply(problem=_problem(denial(exc)), refused=True, warnings=tuple(warnings))
