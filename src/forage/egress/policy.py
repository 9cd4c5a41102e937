"""What the caller opens: `EgressPolicy`, validated when it is made (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from forage.egress.addresses import AddressRules
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    import ssl
    from os import PathLike

__all__ = ["EgressPolicy", "RedirectHosts", "default_policy"]

RedirectHosts = Literal["same-host", "same-site", "any"]

_REDIRECT_HOSTS: Final = ("same-host", "same-site", "any")
_LOOPBACK_ORIGIN: Final = re.compile(r"http://(?:127\.0\.0\.1|\[::1\]):([1-9][0-9]{0,4})", re.ASCII)
_LONGEST_LIST: Final = 1024
_MOST_REDIRECTS: Final = 100
_LONGEST_SECONDS: Final = 3600.0

_Field: TypeAlias = "attrs.Attribute[Any]"


def _tuple(value: object) -> object:
    """Lists and other iterables become tuples; a lone text is left, for the validator to refuse."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return tuple(value)
    return value


def _check(accepted: str, holds: Callable[[Any], bool]) -> Callable[[Any, _Field, Any], None]:
    def validate(_: object, field: _Field, value: Any) -> None:
        if not holds(value):
            raise InvalidPolicyError(field.name, accepted, got=value)

    return validate


def _is_ports(value: tuple[object, ...]) -> bool:
    return _is_short_tuple(value) and all(isinstance(p, int) and not isinstance(p, bool) and 1 <= p <= 65535 for p in value)


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)


def _is_short_tuple(value: object) -> bool:
    return isinstance(value, tuple) and len(value) <= _LONGEST_LIST


def _is_loopback_origin(text: object) -> bool:
    found = _LOOPBACK_ORIGIN.fullmatch(text) if isinstance(text, str) else None
    return found is not None and int(found[1]) <= 65535 and found[1] != "80"


def _is_seconds(value: object, *, least: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and least <= value <= _LONGEST_SECONDS


def _is_ssl_context(value: object) -> bool:
    return callable(getattr(value, "wrap_bio", None))  # by shape, so that judging URLs loads no TLS


@attrs.frozen(kw_only=True)
class EgressPolicy:
    """What may leave. The default is a public website on its default port and nothing else.

    ``guarded=False`` lifts the rules on names, addresses and ports: any host that the machine reaches. URL syntax, redirect and header
    rules stay, and the opt-out shows in manifest and logs.
    ``ports``: ports beside 80 (http) and 443 (https); they loosen nothing else.
    ``allow_networks``: networks that become allowed, "10.9.8.0/24"; names stay refused, metadata addresses need their own /32 or /128.
    ``nat64_prefixes``: translation prefixes of your network; an address inside is judged by the IPv4 address that it embeds.
    ``redirect_hosts``: which other hosts a redirect may lead to; "same-site" is decided by the public suffix list.
    ``max_redirects``: followed at most, 0 to 100.
    ``test_loopback_origins``: for fixtures, exact origins "http://127.0.0.1:8080" or "http://[::1]:8080".
    ``resolve_seconds``: deadline of one look-up; ``max_answer_ttl``: seconds an answer may be kept, 0 keeps none.
    ``ca_file`` or ``ssl_context`` replace the system's authorities; the environment never does.

    Raises `InvalidPolicyError` naming the field.
    """

    guarded: bool = attrs.field(default=True, validator=_check("True or False", lambda v: isinstance(v, bool)))
    ports: tuple[int, ...] = attrs.field(default=(), converter=_tuple, validator=_check("a list of ports from 1 to 65535", _is_ports))
    allow_networks: tuple[str, ...] = attrs.field(
        default=(), converter=_tuple, validator=_check(f"a list of at most {_LONGEST_LIST} networks", _is_short_tuple)
    )
    nat64_prefixes: tuple[str, ...] = attrs.field(
        default=(), converter=_tuple, validator=_check(f"a list of at most {_LONGEST_LIST} IPv6 prefixes", _is_short_tuple)
    )
    redirect_hosts: RedirectHosts = attrs.field(
        default="same-host", validator=_check('"same-host", "same-site" or "any"', lambda v: v in _REDIRECT_HOSTS)
    )
    max_redirects: int = attrs.field(
        default=5,
        validator=_check(
            f"a number from 0 to {_MOST_REDIRECTS}", lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= _MOST_REDIRECTS
        ),
    )
    test_loopback_origins: tuple[str, ...] = attrs.field(
        default=(),
        converter=_tuple,
        validator=_check(
            'a list of origins "http://127.0.0.1:PORT" or "http://[::1]:PORT"',
            lambda v: _is_short_tuple(v) and all(map(_is_loopback_origin, v)),
        ),
    )
    resolve_seconds: float = attrs.field(
        default=10.0, validator=_check("seconds above 0, at most 3600", lambda v: _is_seconds(v, least=0.001))
    )
    max_answer_ttl: float = attrs.field(default=60.0, validator=_check("seconds from 0 to 3600", lambda v: _is_seconds(v, least=0.0)))
    ca_file: str | PathLike[str] | None = attrs.field(
        default=None, validator=_check("a path or None", lambda v: v is None or isinstance(v, str) or hasattr(v, "__fspath__"))
    )
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None, validator=_check("an ssl.SSLContext or None", lambda v: v is None or _is_ssl_context(v))
    )
    address_rules: AddressRules = attrs.field(init=False, eq=False, repr=False)
    """The address table with what this policy opens; made once."""

    @address_rules.default
    def _make_address_rules(self) -> AddressRules:
        given = (self.allow_networks, self.nat64_prefixes)
        if all(map(_is_texts, given)):
            return _shared_rules(*given, guarded=bool(self.guarded))
        return AddressRules(*given, guarded=self.guarded)  # which names what is wrong

    def __attrs_post_init__(self) -> None:
        if self.ca_file is not None and self.ssl_context is not None:
            raise InvalidPolicyError("ssl_context", "a context, or ca_file, not both")


@lru_cache(maxsize=8)
def _shared_rules(allow_networks: tuple[str, ...], nat64_prefixes: tuple[str, ...], *, guarded: bool) -> AddressRules:
    """One table for all policies that open the same: they are derived from each other, for robots.txt and for each page of a browser."""
    return AddressRules(allow_networks, nat64_prefixes, guarded=guarded)


@cache
def default_policy() -> EgressPolicy:
    """The policy of who says nothing; immutable, so that one is enough."""
    return EgressPolicy()
