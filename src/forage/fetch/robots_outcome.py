"""What became of a robots.txt, and what that means for a URL (RFC 9309 section 2.3; pure).

Owns the outcomes (parsed, unavailable, unreachable, stale) and the decision with its reason. Asking for the file and keeping it is
``robots``, what its lines say ``robots_rules``.
"""

from __future__ import annotations

from enum import StrEnum

import attrs
from ada_url import URL

from forage.errors import FetchErrorKind
from forage.fetch.result import FetchFailure
from forage.fetch.robots_paths import RobotsGroup
from forage.fetch.robots_rules import RobotsFile, parse_robots

__all__ = [
    "DEFAULT_MAX_AGE",
    "RobotsDecision",
    "RobotsEntry",
    "RobotsReply",
    "RobotsRules",
    "RobotsState",
    "decide",
    "robots_url",
    "robots_url_of",
    "settle",
]

DEFAULT_MAX_AGE = 86_400.0
"""RFC 9309 section 2.4: a copy is not used for more than a day unless the file is unreachable."""

_GIVE_UP_SECONDS = 30 * 86_400.0  # section 2.3.1.4: unreachable for so long may be taken as unavailable
_FIRST_RECHECK, _LAST_RECHECK = 60.0, 3_600.0
_SHOWN_RULE = 200


class RobotsState(StrEnum):
    """What became of the file. ``UNAVAILABLE`` restricts nothing, ``UNREACHABLE`` everything, ``STALE`` is an old copy that still holds."""

    PARSED = "parsed"
    UNAVAILABLE = "unavailable"
    UNREACHABLE = "unreachable"
    STALE = "stale"


@attrs.frozen(kw_only=True)
class RobotsReply:
    """What asking led to: a final ``status`` with its ``body`` (cut at the limit), or ``problem``, in words.

    ``refused`` marks the guard's no, which no option opens; ``denied`` is a no that was about the authority itself and so holds for its
    pages too: the guard's, or a paused host's. ``unfollowable`` marks a redirect that leads nowhere or on for too long.
    """

    status: int | None = None
    body: bytes = b""
    etag: str | None = None
    last_modified: str | None = None
    problem: str | None = None
    refused: bool = False
    denied: FetchFailure | None = None
    unfollowable: bool = False
    retry_after: float | None = None
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class RobotsEntry:
    """What is known of one authority's file. Times are trio's clock; ``status`` is the last answer's, ``problem`` why there was none.

    ``retry_after`` is what the server asked for, in seconds from ``checked_at``.
    """

    url: str
    state: RobotsState
    file: RobotsFile = attrs.field(factory=RobotsFile, repr=False)
    status: int | None = None
    problem: str | None = None
    refused: bool = False
    denied: FetchFailure | None = None
    retry_after: float | None = None
    warnings: tuple[str, ...] = ()
    checked_at: float = 0.0
    fetched_at: float | None = None
    expires_at: float = 0.0
    unreachable_since: float | None = None
    failures: int = 0
    etag: str | None = None
    last_modified: str | None = None

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The file's sitemap lines as URLs."""
        return self.file.sitemap_urls(self.url)


@attrs.frozen(kw_only=True)
class RobotsDecision:
    """Whether a URL may be asked for; ``kind`` and ``message`` say why not, ``reason`` names file, line and rule where a line denies."""

    allowed: bool
    kind: FetchErrorKind | None = None
    message: str = ""
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    crawl_delay: float | None = None
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class RobotsRules:
    """The caller's choices. ``open_on_error``: an unreachable file restricts nothing, visibly (the guard's refusals stay closed).
    ``strict``: a file that is refused to us (401, 403) closes the site. ``max_age`` in seconds."""

    open_on_error: bool = False
    strict: bool = False
    max_age: float = DEFAULT_MAX_AGE


def robots_url(origin: str) -> str:
    """The one place of an authority's file: always at its root."""
    return f"{origin}/robots.txt"


def robots_url_of(url: str) -> str:
    """The place of the file that governs a URL: never with its credentials, its path or the root dot of its host.

    Raises ValueError for a text that is no URL.
    """
    parsed = URL(url)
    host = parsed.hostname.removesuffix(".")
    return robots_url(f"{parsed.protocol}//{host}{':' if parsed.port else ''}{parsed.port}")


def settle(url: str, reply: RobotsReply, held: RobotsEntry | None, *, now: float, max_age: float) -> RobotsEntry:
    """The entry that a reply leads to, given what is held (pure)."""
    if reply.status == 304 and held is not None and held.fetched_at is not None:
        return attrs.evolve(
            held,
            state=RobotsState.PARSED,
            status=304,
            checked_at=now,
            fetched_at=now,
            expires_at=now + max_age,
            unreachable_since=None,
            failures=0,
            problem=None,
            retry_after=None,
        )
    if reply.status is not None and 200 <= reply.status <= 299:
        return _parsed(url, reply, now=now, max_age=max_age)
    if reply.unfollowable or (reply.status is not None and 400 <= reply.status <= 499 and reply.status not in (408, 429)):
        warnings = reply.warnings
        if reply.status in (401, 403):
            warnings += (f"robots-access-denied: {url} answered {reply.status}; the site gives no rules to read",)
        return RobotsEntry(
            url=url,
            state=RobotsState.UNAVAILABLE,
            status=reply.status,
            problem=reply.problem,
            warnings=warnings,
            checked_at=now,
            expires_at=now + max_age,
        )
    return _unreachable(url, reply, held, now=now)


def _parsed(url: str, reply: RobotsReply, *, now: float, max_age: float) -> RobotsEntry:
    file = parse_robots(reply.body)
    warnings = list(reply.warnings)
    if reply.status == 206:
        warnings.append(f"robots-partial: {url} answered 206, which nobody asked for; what came is used")
    if file.truncated:
        warnings.append(f"robots-truncated: {url} is longer than is read")
    if file.looks_html:
        warnings.append(f"robots-looks-html: {url} starts as a page does")
    return RobotsEntry(
        url=url,
        state=RobotsState.PARSED,
        file=file,
        status=reply.status,
        warnings=tuple(warnings),
        checked_at=now,
        fetched_at=now,
        expires_at=now + max_age,
        etag=reply.etag,
        last_modified=reply.last_modified,
    )


def _unreachable(url: str, reply: RobotsReply, held: RobotsEntry | None, *, now: float) -> RobotsEntry:
    since = held.unreachable_since if held is not None and held.unreachable_since is not None else now
    failures = held.failures + 1 if held is not None else 1
    recheck = max(reply.retry_after or 0.0, min(_FIRST_RECHECK * 2.0 ** min(failures - 1, 10), _LAST_RECHECK))
    problem = reply.problem or f"answered {reply.status}"
    state = RobotsState.UNREACHABLE
    if held is not None and held.fetched_at is not None:
        state = RobotsState.STALE
    elif now - since > _GIVE_UP_SECONDS and not reply.refused:
        state = RobotsState.UNAVAILABLE
    old = held if state is RobotsState.STALE else None
    return RobotsEntry(
        url=url,
        state=state,
        file=old.file if old is not None else RobotsFile(),
        status=reply.status,
        problem=problem,
        refused=reply.refused,
        denied=reply.denied if state is RobotsState.UNREACHABLE else None,
        retry_after=reply.retry_after,
        warnings=(*reply.warnings, *_troubles(url, state, problem)),
        checked_at=now,
        fetched_at=old.fetched_at if old is not None else None,
        expires_at=now + recheck,
        unreachable_since=since,
        failures=failures,
        etag=old.etag if old is not None else None,
        last_modified=old.last_modified if old is not None else None,
    )


def _troubles(url: str, state: RobotsState, problem: str) -> tuple[str, ...]:
    if state is RobotsState.STALE:
        return (f"robots-stale: {url} {problem}; the last copy still applies",)
    if state is RobotsState.UNAVAILABLE:
        return (f"robots-unavailable: {url} has been unreachable for more than 30 days; taken as absent",)
    return ()


def decide(entry: RobotsEntry, group: RobotsGroup, target: str, rules: RobotsRules, *, now: float) -> RobotsDecision:
    """What an entry says of one target, a path with its query (pure)."""
    left = None if entry.retry_after is None else max(0.0, entry.checked_at + entry.retry_after - now)
    if entry.denied is not None:
        return RobotsDecision(
            allowed=False,
            kind=entry.denied.kind,
            message=entry.denied.message,
            reason=entry.denied.reason,
            warnings=entry.warnings,
            retry_after=left,
        )
    if entry.state is RobotsState.UNREACHABLE:
        problem = entry.problem or "is unreachable"
        if rules.open_on_error and not entry.refused:
            warning = f"robots-unreachable: {entry.url} {problem}; opened by robots_on_error"
            return RobotsDecision(allowed=True, warnings=(*entry.warnings, warning))
        return RobotsDecision(
            allowed=False,
            kind=FetchErrorKind.ROBOTS_UNREACHABLE,
            message=f"{entry.url} {problem}",
            warnings=entry.warnings,
            retry_after=left,
        )
    if rules.strict and entry.status in (401, 403):
        message = f"{entry.url} answered {entry.status}, and robots_access_denied says to stay out"
        return RobotsDecision(allowed=False, kind=FetchErrorKind.ROBOTS_DENIED, message=message, warnings=entry.warnings)
    verdict = group.judge(target)
    if verdict.allowed:
        return RobotsDecision(allowed=True, warnings=entry.warnings, crawl_delay=group.crawl_delay)
    reason = None
    if verdict.rule is not None:
        reason = f"{entry.url} line {verdict.rule.line}: Disallow: {_shown(verdict.rule.path)}"
    return RobotsDecision(
        allowed=False,
        kind=FetchErrorKind.ROBOTS_DENIED,
        message=f"robots.txt disallows {group.token}: {reason or entry.url}",
        reason=reason,
        warnings=entry.warnings,
        crawl_delay=group.crawl_delay,
    )


def _shown(path: str) -> str:
    """The site's own text in a message: printable, and not without end."""
    cut = path if len(path) <= _SHOWN_RULE else f"{path[:_SHOWN_RULE]}…"
    return "".join(c if c.isprintable() else "\ufffd" for c in cut)
