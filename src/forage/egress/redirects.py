"""The judgement of one redirect (egress policy, section 7; pure): one function for the client's loop and for the crawl's.

Owns the order of the rules, what the next request looks like and which headers travel on. The target's own judgement is that of any
first URL (``rules``). Nothing is looked up or sent here; the caller does that for each hop anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import attrs
from ada_url import URL

from forage.egress.hosts import without_root_dot
from forage.egress.rules import AUTHORITY, DEFAULT_PORTS, LONGEST_URL, EgressPolicy, JudgedUrl, judge_url
from forage.errors import EgressCode, EgressDeniedError

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

__all__ = ["REDIRECT_STATUSES", "Head", "Redirect", "RedirectChain", "forwarded_headers", "judge_redirect"]

REDIRECT_STATUSES: Final = frozenset([301, 302, 303, 307, 308])

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_SAFE_HEADERS: Final = frozenset(["accept", "accept-encoding", "accept-language", "user-agent"])


class Head(Protocol):
    """What is read of a response: its status, and its fields as received."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...


@attrs.frozen(kw_only=True)
class RedirectChain:
    """The requests made so far, the first one first. ``only_safe_headers``: another origin was visited, for good."""

    policy: EgressPolicy
    hops: tuple[JudgedUrl, ...] = attrs.field(validator=attrs.validators.min_len(1))
    method: str = "GET"
    only_safe_headers: bool = False

    @classmethod
    def begin(cls, url: JudgedUrl, policy: EgressPolicy, method: str = "GET") -> RedirectChain:
        return cls(policy=policy, hops=(url,), method=method)

    @property
    def current(self) -> JudgedUrl:
        """The URL whose response is being judged."""
        return self.hops[-1]


@attrs.frozen(kw_only=True)
class Redirect:
    """Follow: ask ``target`` with ``chain.method``, the body dropped or not, and the headers that `forwarded_headers` leaves.

    ``repeats``: the target was asked before in this chain. It is looked up and judged all the same, then `refuse_repeat` ends it.
    """

    target: JudgedUrl
    chain: RedirectChain
    drop_body: bool
    repeats: bool

    def refuse_repeat(self) -> None:
        """Rule 7, to be called once the target's addresses were judged: `EgressDeniedError` (REDIRECT_LOOP) for a repeated target."""
        if self.repeats:
            _deny(EgressCode.REDIRECT_LOOP, self.target.host, "R7", _shown(self.target.url))


def judge_redirect(chain: RedirectChain, head: Head) -> Redirect | None:
    """Judge the response ``head`` to the last request of ``chain``: None when it is what the caller gets, else where to go.

    Raises `EgressDeniedError` with the code of the first rule that the target breaks; its ``target`` is origin and path, without query.
    An unexpected failure inside is a denial.
    """
    if head.status not in REDIRECT_STATUSES:
        return None
    try:
        return _judge_redirect(chain, head)
    except EgressDeniedError:
        raise
    except Exception as exc:  # the guard fails closed
        detail = f"cannot be judged ({type(exc).__name__})"
        raise EgressDeniedError(EgressCode.REDIRECT_INVALID, chain.current.host, detail=detail) from exc


def _judge_redirect(chain: RedirectChain, head: Head) -> Redirect | None:
    current = chain.current
    if len(chain.hops) > chain.policy.max_redirects:
        _deny(EgressCode.REDIRECT_LIMIT, current.host, "R1")
    location = _location(head, current)
    if not location:
        return None
    parsed, raw, authority = _resolve(location, current)
    shown = _shown(parsed.href)
    scheme = parsed.protocol[:-1]
    host = without_root_dot(parsed.hostname.strip("[]"))
    if scheme not in DEFAULT_PORTS:
        _deny(EgressCode.INVALID_SCHEME, host or None, "R3", shown)
    if "@" in authority:
        _deny(EgressCode.CREDENTIALS, host, "R3", shown)
    if scheme == "http" and any(hop.scheme == "https" for hop in chain.hops):
        _deny(EgressCode.REDIRECT_DOWNGRADE, host, "R4", shown)
    port = int(parsed.port) if parsed.port else DEFAULT_PORTS[scheme]
    if not _is_reachable(current, scheme, host, port, chain.policy):
        _deny(EgressCode.REDIRECT_CROSS_HOST, host, "R5", shown)
    try:
        target = judge_url(raw, chain.policy)
    except EgressDeniedError as exc:
        exc.target = shown
        raise
    return _follow(chain, head.status, target)


def _location(head: Head, current: JudgedUrl) -> str:
    """Rule 2: the one value of Location as text, "" when there is none."""
    values = {value.strip(b" \t") for name, value in head.headers if name.lower() == b"location"}
    if len(values) > 1:
        # Two readers would take two of them; the one that was judged need not be the one that is followed.
        _deny(EgressCode.REDIRECT_INVALID, current.host, "R2", detail="differing Location headers")
    value = values.pop() if values else b""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        # The bytes are kept as they are; in a host the percent signs are refused.
        text = "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in value)
    if _CONTROLS.search(text) or text.startswith(("\\", "/\\")) or len(text) > LONGEST_URL:
        _deny(EgressCode.REDIRECT_INVALID, current.host, "R2", detail="control character, leading backslash or too long")
    return text


def _resolve(location: str, current: JudgedUrl) -> tuple[URL, str, str]:
    """The target, the raw text by which it is judged (the Location itself where that names a host) and the authority in that."""
    try:
        parsed = URL(location, current.url)
    except ValueError as exc:
        _deny(EgressCode.REDIRECT_INVALID, current.host, "R2", cause=exc)
    if location.startswith("//"):
        raw = f"{current.scheme}:{location}"
    elif _SCHEME.match(location):
        raw = location
    else:
        return parsed, parsed.href, ""
    if parsed.protocol[:-1] not in DEFAULT_PORTS:
        return parsed, raw, ""
    found = AUTHORITY.match(raw)
    if found is None or found[2] or " " in found[1]:
        _deny(EgressCode.REDIRECT_INVALID, parsed.hostname, "R2", _shown(parsed.href))
    return parsed, raw, found[1]


def _is_reachable(current: JudgedUrl, scheme: str, host: str, port: int, policy: EgressPolicy) -> bool:
    """Rule 5: whether a redirect may lead from ``current`` to this host and port."""
    if policy.redirect_hosts == "any":
        return True
    if host == current.host and (port == current.port or _is_upgrade(current, scheme, host, port)):
        return True
    if policy.redirect_hosts != "same-site" or current.literal is not None or ":" in host:
        return False
    site = _site_of(host)
    return site is not None and site == _site_of(current.host)


def _is_upgrade(current: JudgedUrl, scheme: str, host: str, port: int) -> bool:
    """The commonest redirect of the web: http on its port to https on its port, same host."""
    return (current.scheme, current.port, scheme, port) == ("http", 80, "https", 443) and host == current.host


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()  # a constant of the installed package


def _site_of(host: str) -> str | None:
    """The registrable domain; None for a public suffix, below which nobody answers for their neighbours."""
    site: str | None = _suffixes().privatesuffix(host)
    return site


def _follow(chain: RedirectChain, status: int, target: JudgedUrl) -> Redirect:
    current, method = chain.current, chain.method
    becomes_get = (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST")
    same_origin = target.origin == current.origin or _is_upgrade(current, target.scheme, target.host, target.port)
    following = RedirectChain(
        policy=chain.policy,
        hops=(*chain.hops, target),
        method="GET" if becomes_get else method,
        only_safe_headers=chain.only_safe_headers or not same_origin,
    )
    return Redirect(target=target, chain=following, drop_body=becomes_get, repeats=any(target.url == hop.url for hop in chain.hops))


def forwarded_headers(headers: Iterable[tuple[str, str]], redirect: Redirect) -> tuple[tuple[str, str], ...]:
    """The caller's headers that go with the next request.

    Fields of a dropped body stay behind. At another origin only User-Agent, Accept, Accept-Language and Accept-Encoding arrive, for the
    rest of the chain, so that no credential follows a redirect; coming back does not bring them back.
    """

    def travels(name: str) -> bool:
        if redirect.chain.only_safe_headers:
            return name in _SAFE_HEADERS
        return not (redirect.drop_body and name.startswith("content-"))

    return tuple((name, value) for name, value in headers if travels(name.lower()))


def _shown(href: str) -> str:
    """Origin and path of a serialised URL: what an error may show."""
    origin, slashes, rest = href.partition("://")
    if not slashes:
        return f"{origin.partition(':')[0]}:"
    authority, slash, path = rest.partition("/")
    path = re.split(r"[?#]", path, maxsplit=1)[0]
    return f"{origin}://{re.split(r'[?#]', authority)[0].rpartition('@')[2]}{slash}{path}"


def _deny(
    code: EgressCode, host: str | None, rule: str, target: str | None = None, *, detail: str | None = None, cause: Exception | None = None
) -> NoReturn:
    raise EgressDeniedError(code, host, rule=rule, target=target, detail=detail) from cause
