"""Asking the archive: paced, counted, retried and redirected requests behind one seam, `ArchiveFetch`.

One `Archive` is the gate of a whole run: starts are spaced, a server that says "later" pauses everybody, the request cap counts every
request. Owns which answers are worth another attempt and which redirect is still the same capture; what becomes of an answer is
``capture``'s business. `GuardedArchive` is the real seam, through the egress guard.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import attrs
import trio
from ada_url import URL

from forage.egress import EgressPolicy, EgressSession, judge_url
from forage.errors import CaptureError, EgressDeniedError, EgressError, FetchError, FetchErrorKind, InvalidPolicyError
from forage.fetch import DEFAULT_USER_AGENT, HostClock
from forage.fetch.retry import read_retry_after
from forage.mirror.keys import ARCHIVE, ARCHIVE_HOST, CaptureUrl, parse_wayback_url

__all__ = [
    "Archive",
    "ArchiveAnswer",
    "ArchiveFetch",
    "ArchiveReply",
    "ArchiveRequestError",
    "GuardedArchive",
    "RequestCapError",
    "archive_egress",
    "check_archive",
    "open_guarded_archive",
]

TRANSIENT: Final = frozenset([429, 498, 500, 502, 503, 504])  # 498 is how the archive refuses a client it takes for a robot
_PAUSING: Final = frozenset([429, 503])
_MOST_REDIRECTS: Final = 5
_FIRST_WAIT: Final = 1.0
_JITTER: Final = 0.2
LONGEST_RETRY_AFTER: Final = 120.0
_RETRIED: Final = frozenset([FetchErrorKind.NETWORK, FetchErrorKind.TIMEOUT, FetchErrorKind.INCOMPLETE_BODY])

_SCHEME_AND_WWW: Final = re.compile(r"https?://(?:www\.)?", re.ASCII | re.IGNORECASE)
_CAPTURE_PATH: Final = re.compile(r"/web/[0-9]{4,14}(?:[a-z]{1,3}_)?/", re.ASCII)
_ARCHIVE_BASES: Final = (ARCHIVE, f"http://{ARCHIVE_HOST}", f"//{ARCHIVE_HOST}", "")
_LOOPBACK: Final = re.compile(r"http://(?:127\.0\.0\.1|\[::1\]):[0-9]+(?=/|\Z)")
_CONTACT: Final = re.compile(r"[\x20-\x7e]{1,512}")
_BASE: Final = re.compile(r"https?://[^/?#\s]+(?:/[^?#\s]*)?")


class ArchiveRequestError(CaptureError):
    """A request brought no answer; ``transient`` says whether asking again may help."""

    def __init__(self, message: str, *, transient: bool = True) -> None:
        self.transient = transient
        super().__init__(message)


class RequestCapError(CaptureError):
    """The run's cap of archive requests is reached; nothing more is asked."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        super().__init__(f"request cap reached ({cap})")


@attrs.frozen(kw_only=True)
class ArchiveReply:
    """One answer, redirects not followed. ``content_type`` is the header verbatim, empty when there was none."""

    status: int
    content_type: str = ""
    body: bytes = attrs.field(default=b"", repr=False)
    location: str | None = None
    retry_after: str | None = None
    date: str | None = None


ArchiveFetch = Callable[[str], Awaitable[ArchiveReply]]
"""Fetches one archive URL. Raises ArchiveRequestError. It puts its own deadline around an attempt."""


@attrs.frozen(kw_only=True)
class ArchiveAnswer:
    """The last answer for a capture; ``final_key`` is the capture that redirects led to, None without any."""

    reply: ArchiveReply
    final_key: str | None = None


class Archive:
    """The gate of one run.

    ``delay``: seconds between request starts; ``attempts`` a request at most; ``max_requests`` of the run, None for no cap;
    ``together``: requests in flight at most. Raises InvalidPolicyError naming the option.
    """

    def __init__(
        self,
        fetch: ArchiveFetch,
        *,
        base: str = ARCHIVE,
        delay: float = 1.5,
        attempts: int = 3,
        max_requests: int | None = None,
        together: int = 1,
        random: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        if _BASE.fullmatch(base) is None:
            raise InvalidPolicyError("archive_base", "an http or https URL", got=base)
        if not 0 <= delay < math.inf:
            raise InvalidPolicyError("delay", "seconds from 0", got=delay)
        if type(attempts) is not int or attempts < 1:
            raise InvalidPolicyError("attempts", "a whole number from 1", got=attempts)
        self._fetch = fetch
        self._bases = (base.rstrip("/"), *_ARCHIVE_BASES)
        self._attempts = attempts
        self._cap = max_requests
        self._random = random
        self._utc_now = utc_now
        self._gate = HostClock(ARCHIVE_HOST, delay=delay, max_crawl_delay=0.0, max_pause=LONGEST_RETRY_AFTER, per_host=together)
        self.requests = 0

    @property
    def capped(self) -> bool:
        """True when no request is left."""
        return self._cap is not None and self.requests >= self._cap

    async def get(self, url: str) -> ArchiveAnswer:
        """The answer for a capture URL. Redirects to another capture of the same original are followed, each hop paced and counted.

        Raises ArchiveRequestError when no attempt brought an answer, RequestCapError before a request that the cap forbids.
        """
        asked = parse_wayback_url(url)
        reply = await self._retried(url)
        final: CaptureUrl | None = None
        for _ in range(_MOST_REDIRECTS):
            target = self._same_capture(asked, reply)
            if target is None:
                break
            url, final = target
            reply = await self._retried(url)
        return ArchiveAnswer(reply=reply, final_key=None if final is None else final.key)

    def _same_capture(self, asked: CaptureUrl | None, reply: ArchiveReply) -> tuple[str, CaptureUrl] | None:
        if not 300 <= reply.status < 400 or reply.location is None or asked is None:
            return None
        location = reply.location.strip(" \t").partition("#")[0]
        base = next((base for base in self._bases if location.startswith(f"{base}/web/")), None)
        if base is None:
            return None
        url = ARCHIVE + location[len(base) :]
        capture = parse_wayback_url(url)
        if capture is None or not _same_original(capture.original, asked.original):
            return None
        return url, capture

    async def _retried(self, url: str) -> ArchiveReply:
        if not _names_a_capture(url):
            raise ArchiveRequestError("not the URL of a capture, once its path is resolved", transient=False)
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                reply = await self._once(url)
            except ArchiveRequestError as exc:
                if last or not exc.transient:
                    raise
                await trio.sleep(self._wait(attempt))
                continue
            asked = read_retry_after(reply.retry_after, date=reply.date, now=self._utc_now())
            seconds = 0.0 if asked is None else asked.seconds
            if reply.status in _PAUSING and 0 < seconds <= LONGEST_RETRY_AFTER:
                self._gate.pause(seconds)
            if reply.status not in TRANSIENT or last or seconds > LONGEST_RETRY_AFTER:
                return reply
            await trio.sleep(max(self._wait(attempt), seconds))
        raise AssertionError

    def _wait(self, attempt: int) -> float:
        return _FIRST_WAIT * 2.0 ** (attempt - 1) * (1 - _JITTER + 2 * _JITTER * self._random())

    async def _once(self, url: str) -> ArchiveReply:
        self._check_cap()
        async with self._gate.request():
            # Checked again: the last request may have been taken while this one waited for its turn.
            self._check_cap()
            self.requests += 1
            return await self._fetch(url)

    def _check_cap(self) -> None:
        if self._cap is not None and self.requests >= self._cap:
            raise RequestCapError(self._cap)


def _names_a_capture(url: str) -> bool:
    """False where dot segments lead out of ``/web/<timestamp>/``: no page makes us ask the archive for anything else (to save one, say)."""
    try:
        return _CAPTURE_PATH.match(URL(url).pathname) is not None
    except ValueError:
        return True  # the guard says what is wrong with it


def _same_original(one: str, other: str) -> bool:
    """Equal but for scheme and ``www.``; an empty path and a default port are no difference."""
    return one == other or _comparable(one) == _comparable(other)


def _comparable(original: str) -> str:
    try:
        parsed = URL(original)
    except ValueError:
        return _SCHEME_AND_WWW.sub("", original, count=1)
    return _SCHEME_AND_WWW.sub("", parsed.href.partition("#")[0], count=1)


def archive_egress(base: str) -> EgressPolicy:
    """The guard's policy for an archive at ``base``: a loopback origin is opened, exactly that one; anything else is judged as ever."""
    found = _LOOPBACK.match(base)
    return EgressPolicy(test_loopback_origins=() if found is None else (found[0],))


def check_archive(base: str, contact: str) -> None:
    """Raises InvalidPolicyError where every request would fail: the guard refuses the service by its URL, no header carries the contact."""
    if _BASE.fullmatch(base) is None:
        raise InvalidPolicyError("archive_base", "an http or https URL", got=base)
    try:
        judge_url(base, archive_egress(base))
    except EgressDeniedError as exc:
        raise InvalidPolicyError("archive_base", f"a service that the guard lets through ({exc})") from exc
    _check_contact(contact)


def _check_contact(contact: str) -> None:
    if _CONTACT.fullmatch(contact) is None:
        raise InvalidPolicyError("contact", "one line of printable ASCII, at most 512 characters", got=contact)


class GuardedArchive:
    """`ArchiveFetch` over guarded exchanges. ``timeout``: seconds of one attempt; ``contact``: how the archive can reach the operator.

    Raises InvalidPolicyError for a contact that no header carries, and for no time at all.
    """

    def __init__(
        self,
        session: EgressSession,
        *,
        base: str = ARCHIVE,
        contact: str = "forage-crawl",
        timeout: float = 20.0,
        max_body_bytes: int | None = None,
    ) -> None:
        _check_contact(contact)
        if not 0 < timeout < math.inf:
            raise InvalidPolicyError("timeout", "a time above 0", got=timeout)
        self._session = session
        self._base = base.rstrip("/")
        self._timeout = timeout
        self._limit = max_body_bytes
        self._headers = (
            ("User-Agent", f"{DEFAULT_USER_AGENT} (mirror; contact: {contact})"),
            ("Accept", "*/*"),
            ("Accept-Encoding", "gzip, br, zstd"),
        )

    async def __call__(self, url: str) -> ArchiveReply:
        """One exchange. A fragment is never sent, credentials and other hosts are refused by the guard."""
        scheme, _, rest = url.partition(f"://{ARCHIVE_HOST}/")
        address = f"{self._base}/{rest}" if rest and scheme in {"http", "https"} else url
        try:
            with trio.fail_after(self._timeout):
                received = await self._session.exchange(address, headers=self._headers, max_body_bytes=self._limit)
        except trio.TooSlowError as exc:
            raise ArchiveRequestError(f"no answer within {self._timeout:g} s") from exc
        except EgressError as exc:
            raise ArchiveRequestError(str(exc), transient=not isinstance(exc, EgressDeniedError)) from exc
        except FetchError as exc:
            raise ArchiveRequestError(f"{exc.kind}: {exc}", transient=exc.kind in _RETRIED) from exc
        return ArchiveReply(
            status=received.status,
            content_type=received.header("content-type") or "",
            body=received.body,
            location=received.header("location"),
            retry_after=received.header("retry-after"),
            date=received.header("date"),
        )


@asynccontextmanager
async def open_guarded_archive(*, base: str = ARCHIVE, contact: str = "forage-crawl", timeout: float = 20.0) -> AsyncIterator[ArchiveFetch]:
    """The archive at ``base`` through a guarded session of its own. Raises InvalidPolicyError before it opens anything."""
    check_archive(base, contact)
    async with EgressSession(archive_egress(base)) as session:
        yield GuardedArchive(session, base=base, contact=contact, timeout=timeout)
