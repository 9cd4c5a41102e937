"""The judgement of one URL and of the answers to its look-up (egress policy, sections 1 to 5; pure).

Decides, in the order of the policy: shape, scheme, credentials, host, denied host, port, address. Redirects are judged in
``redirects``, which comes back here for each target. Nothing is looked up and nothing is dialled here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final, Generic, TypeVar

import attrs
from ada_url import URL

from forage.egress.addresses import EgressAddress, parse_address
from forage.egress.answers import DnsAnswers
from forage.egress.hosts import check_host, without_root_dot
from forage.egress.policy import EgressPolicy, RedirectHosts
from forage.errors import EgressCode, EgressDeniedError, EgressUnreachableError

__all__ = ["AUTHORITY", "DEFAULT_PORTS", "LONGEST_URL", "EgressPolicy", "Judge", "JudgedUrl", "RedirectHosts", "judge_answers", "judge_url"]

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

LONGEST_URL: Final = 16_384
_LONGEST_SHOWN: Final = 253
_LONGEST_HELD_URL: Final = 2048
_MOST_HELD_ANSWERS: Final = 64  # so that no page or name server fills the memory of verdicts with long ones
_EDGES: Final = "".join(map(chr, range(0x21)))  # C0 controls and space
AUTHORITY: Final = re.compile(r"https?://(?![/\\])([^/?#\\]*)(\\?)", re.ASCII | re.IGNORECASE)
_VANISHING: Final = re.compile(r"[\x00-\x20\x7f-\xa0]")
# An origin, and a path and query of characters that the parser leaves alone; dot segments are excluded where it is used.
_CLEAN: Final = re.compile(
    r"(https?://[A-Za-z0-9.:\[\]-]{1,260})(/[A-Za-z0-9_.~!$&'()*+,;=:@/-]*(?:\?[A-Za-z0-9_.~!$&()*+,;=:@/?%-]*)?)", re.ASCII
)


@attrs.frozen(kw_only=True)
class JudgedUrl:
    """A URL that may be asked for, in the one spelling that goes on the wire.

    ``host`` is the name or bare address, without root dot or brackets; ``target`` the path and query to send; ``host_header`` what the
    Host header says. ``literal`` is the judged address when the host is one: then nothing is looked up. ``loopback_origin`` marks an
    origin that the policy opened for tests.
    """

    url: str
    scheme: str
    host: str
    port: int
    target: str
    host_header: str
    literal: EgressAddress | None = None
    loopback_origin: bool = False

    @property
    def origin(self) -> str:
        """Scheme, host and port as one text, the default port left out."""
        return f"{self.scheme}://{self.host_header}"


def judge_url(text: str, policy: EgressPolicy) -> JudgedUrl:
    """Judge the raw text of a URL, without any I/O.

    Raises `EgressDeniedError` with the code of the first rule that it breaks; its ``host`` is safe to log. An unexpected failure inside
    is a denial too.
    """
    try:
        return _judge_url(text, policy)
    except EgressDeniedError:
        raise
    except Exception as exc:  # the guard fails closed: what it cannot judge, it refuses
        raise EgressDeniedError(EgressCode.INVALID_URL, detail=f"cannot be judged ({type(exc).__name__})") from exc


def _judge_url(text: str, policy: EgressPolicy) -> JudgedUrl:
    stripped, parsed = _parse(text)
    # The serialised form is read by position: the parser wrote it, and of http and https it is scheme://host[:port]/path.
    scheme, _, rest = parsed.href.partition("://")
    if scheme not in DEFAULT_PORTS:
        raise EgressDeniedError(EgressCode.INVALID_SCHEME, _shown(parsed), rule="U3")
    authority, _, path = rest.partition("/")
    name, port_text = _host_and_port(authority)
    literal_ipv4 = name[-1:].isdecimal() and parse_address(name) is not None
    _check_authority(stripped, parsed, name if literal_ipv4 else None)
    literal = literal_ipv4 or name.startswith("[")
    host = name.strip("[]") if literal else without_root_dot(name)
    if not literal:
        _check_name(host, policy)
    port = int(port_text) if port_text else DEFAULT_PORTS[scheme]
    target = "/" + path.partition("#")[0]
    host_header = f"{name if literal else host}{':' if port_text else ''}{port_text}"
    origin = f"{scheme}://{host_header}"
    opened = origin in policy.test_loopback_origins
    if port == 0 or (port_text and policy.guarded and not opened and port not in policy.ports):
        detail = "port 0" if port == 0 else f"port {port}, which ports= opens"
        raise EgressDeniedError(EgressCode.INVALID_PORT, host, rule="ports", detail=detail)
    return JudgedUrl(
        url=origin + target,
        scheme=scheme,
        host=host,
        port=port,
        target=target,
        host_header=host_header,
        literal=_judge_literal(host, policy, opened=opened) if literal else None,
        loopback_origin=opened,
    )


def _host_and_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        name, _, rest = authority.partition("]")
        return name + "]", rest[1:]
    name, _, port = authority.partition(":")
    return name, port


def _shown(parsed: URL) -> str | None:
    """The host as an error may show it."""
    return without_root_dot(parsed.hostname.strip("[]"))[:_LONGEST_SHOWN] or None


def _parse(text: object) -> tuple[str, URL]:
    """U1 and U2: one parser; what it refuses ends here."""
    if not isinstance(text, str) or len(text) > LONGEST_URL:
        raise EgressDeniedError(EgressCode.INVALID_URL, rule="U1", detail=f"not a text of at most {LONGEST_URL} characters")
    stripped = text.strip(_EDGES)
    try:
        return stripped, URL(stripped)
    except UnicodeEncodeError as exc:
        raise EgressDeniedError(EgressCode.INVALID_URL, rule="U1", detail="lone surrogate") from exc
    except ValueError as exc:
        raise EgressDeniedError(EgressCode.INVALID_URL, rule="U2") from exc


def _check_authority(stripped: str, parsed: URL, ipv4: str | None) -> None:
    """U4 to U8: the raw text must name the parsed host for every other reader too. ``ipv4`` is that host where it is an IPv4 address."""
    found = AUTHORITY.match(stripped)
    if found is None:
        raise EgressDeniedError(EgressCode.INVALID_URL, _shown(parsed), rule="U4", detail="write scheme://host")
    authority, backslash = found.groups()
    if "@" in authority:
        raise EgressDeniedError(EgressCode.CREDENTIALS, _shown(parsed), rule="U5")
    if backslash or _VANISHING.search(authority):
        detail = "backslash, control character or space in the authority"
        raise EgressDeniedError(EgressCode.INVALID_URL, _shown(parsed), rule="U6", detail=detail)
    if "%" in authority:
        raise EgressDeniedError(EgressCode.INVALID_HOST, _shown(parsed), rule="U7", detail="percent sign in the host")
    if ipv4 is not None and authority.partition(":")[0] != ipv4:
        raise EgressDeniedError(EgressCode.INVALID_HOST, ipv4, rule="U8", detail="IPv4 address not in dotted decimal")


def _check_name(host: str, policy: EgressPolicy) -> None:
    try:
        check_host(host)
    except EgressDeniedError as exc:
        if policy.guarded or exc.code is not EgressCode.DENIED_HOST:
            raise


def _judge_literal(host: str, policy: EgressPolicy, *, opened: bool) -> EgressAddress:
    if opened:  # the exact text of a loopback address, by the policy's validation
        return EgressAddress(address=host, family=6 if ":" in host else 4)
    return policy.address_rules.classify(host, host)


def judge_answers(answers: DnsAnswers, policy: EgressPolicy, host: str) -> tuple[EgressAddress, ...]:
    """Judge every answer of one look-up before any is used: the addresses to dial, in the order of the answers.

    One bad answer refuses all. Raises `EgressDeniedError` (DENIED_ADDRESS, INVALID_HOST; DENIED_HOST for a name of the CNAME chain) or
    `EgressUnreachableError` (DNS_FAILURE) when there is none. An unexpected failure inside is a denial.
    """
    try:
        for alias in answers.aliases:
            _check_alias(alias, policy, host)
        judged = dict.fromkeys(policy.address_rules.classify(answer, host) for answer in answers.addresses)
    except EgressDeniedError:
        raise
    except Exception as exc:  # fails closed, as above
        raise EgressDeniedError(EgressCode.INVALID_HOST, host, detail=f"cannot be judged ({type(exc).__name__})") from exc
    if not judged:
        raise EgressUnreachableError(EgressCode.DNS_FAILURE, host, rule="D2", detail="no address")
    return tuple(judged)


def _check_alias(alias: str, policy: EgressPolicy, host: str) -> None:
    """D9: a public name must not lead through one that is refused by name."""
    try:
        _check_name(without_root_dot(alias.lower()), policy)
    except EgressDeniedError as exc:
        raise EgressDeniedError(exc.code, host, rule="D9", detail="an alias of it is refused by name") from exc


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Memo(Generic[_Key, _Value]):
    """The last ``size`` verdicts, least recently used first out. Verdicts depend on the policy only, so they never go stale."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: OrderedDict[_Key, _Value] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        value = self._held.get(key)
        if value is not None:
            self._held.move_to_end(key)
        return value

    def put(self, key: _Key, value: _Value) -> None:
        self._held[key] = value
        if len(self._held) > self._size:
            self._held.popitem(last=False)


def _is_short(answers: DnsAnswers) -> bool:
    """Whether answers are texts, and few enough to be remembered; others are judged each time."""
    try:
        texts = (*answers.addresses, *answers.aliases)
        return len(texts) <= _MOST_HELD_ANSWERS and all(type(text) is str and len(text) <= _LONGEST_SHOWN for text in texts)
    except Exception:  # noqa: BLE001 - what is no answer at all is for judge_answers to refuse
        return False


class Judge:
    """`judge_url` and `judge_answers` under one policy, with a bounded memory of what passed: judging again is a dictionary look-up.

    One a session; not shared between threads. Refusals are not remembered, so a hostile page cannot push out what is in use with them.
    """

    def __init__(self, policy: EgressPolicy, *, urls: int = 1024, answers: int = 1024) -> None:
        self.policy = policy
        self._urls: _Memo[str, JudgedUrl] = _Memo(urls)
        self._origins: _Memo[str, JudgedUrl] = _Memo(urls)  # a URL of each origin that passed
        self._answers: _Memo[tuple[tuple[str, ...], tuple[str, ...]], tuple[EgressAddress, ...]] = _Memo(answers)

    def url(self, text: str) -> JudgedUrl:
        """As `judge_url`; the serialised URL of an earlier verdict is found at once, too."""
        known = self._urls.get(text) if type(text) is str else None
        if known is not None:
            return known
        judged = self._of_known_origin(text) if type(text) is str else None
        if judged is None:
            judged = judge_url(text, self.policy)
            if len(judged.url) <= _LONGEST_HELD_URL:
                self._origins.put(judged.origin, judged)
        if len(judged.url) <= _LONGEST_HELD_URL:
            self._urls.put(judged.url, judged)
        return judged

    def has(self, judged: JudgedUrl) -> bool:
        """Whether this very verdict is one of ours, and still remembered."""
        return self._urls.get(judged.url) is judged

    def _of_known_origin(self, text: str) -> JudgedUrl | None:
        """The verdict on a URL of an origin that passed before, where nothing but the origin is left to be judged; else None.

        A verdict is about scheme, host and port. What follows is data, if the parser would leave it as it is: then the URL is told
        from its neighbour by text. Property tests hold this against `judge_url`.
        """
        clean = _CLEAN.fullmatch(text) if len(text) <= LONGEST_URL else None
        if clean is None or "/." in clean[2]:
            return None
        known = self._origins.get(clean[1])
        if known is None:
            return None
        return JudgedUrl(
            url=text,
            scheme=known.scheme,
            host=known.host,
            port=known.port,
            target=clean[2],
            host_header=known.host_header,
            literal=known.literal,
            loopback_origin=known.loopback_origin,
        )

    def answers(self, answers: DnsAnswers, host: str) -> tuple[EgressAddress, ...]:
        """As `judge_answers`. Verdicts on addresses and aliases do not depend on ``host``, which only errors show."""
        if not _is_short(answers):
            return judge_answers(answers, self.policy, host)
        key = (answers.addresses, answers.aliases)
        known = self._answers.get(key)
        if known is not None:
            return known
        judged = judge_answers(answers, self.policy, host)
        self._answers.put(key, judged)
        return judged
