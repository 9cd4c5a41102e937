"""What a forward proxy lets through, and how much of it: values that are checked when they are made. Does no I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from forage.egress.options import text_tuple
from forage.egress.policy import EgressPolicy, default_policy
from forage.egress.rules import JudgedUrl
from forage.errors import EgressCode, EgressDeniedError, InvalidPolicyError

__all__ = ["ProxyLimits", "ProxyRules", "deny_all", "only"]

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _check(_: object, field: attrs.Attribute[Any], value: object) -> None:
    seconds = "seconds" in field.name
    if value is None and field.default is None:
        return
    if not (_is_seconds(value) if seconds else _is_count(value)):
        accepted = ("seconds above 0" if seconds else "a number above 0") + (", or None" if field.default is None else "")
        raise InvalidPolicyError(field.name, accepted, got=value)


@attrs.frozen(kw_only=True)
class ProxyLimits:
    """Limits of one proxy; sizes in bytes, times in seconds, None for none.

    Of the whole proxy: ``bytes_up`` and ``bytes_down`` over all its connections, heads included, and ``seconds`` since it was opened.
    Once one of these is used up every connection is closed and later ones are refused. ``connections`` are open at once; one more is
    closed as soon as it is accepted.

    Of each connection: ``head_bytes`` of a request and ``head_seconds`` to send it; ``body_bytes`` of an absolute-form request, which is
    read whole before anything is dialled; ``connect_seconds`` for look-up and connection; ``idle_seconds`` without a byte either way, and
    ``linger_seconds`` of that once one end of a tunnel has finished.
    """

    connections: int = attrs.field(default=64, validator=_check)
    bytes_up: int | None = attrs.field(default=None, validator=_check)
    bytes_down: int | None = attrs.field(default=None, validator=_check)
    seconds: float | None = attrs.field(default=None, validator=_check)
    head_bytes: int = attrs.field(default=65_536, validator=_check)
    head_seconds: float = attrs.field(default=30.0, validator=_check)
    body_bytes: int = attrs.field(default=8_388_608, validator=_check)
    connect_seconds: float = attrs.field(default=30.0, validator=_check)
    idle_seconds: float = attrs.field(default=300.0, validator=_check)
    linger_seconds: float = attrs.field(default=10.0, validator=_check)


_NAMES: Final = 'host names in lower case, without a final dot, like "archive.org"'


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return text_tuple("refuse_hosts", value, f"a list of {_NAMES}")


def _origins(value: Iterable[str] | None) -> tuple[str, ...] | None:
    """A lone text must not get through: looking for an origin in it would find parts of it."""
    return None if value is None else text_tuple("origins", value, 'a list of origins like "http://127.0.0.1:8080", or None')


def _check_names(_: object, field: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for name in value:
        if _NAME.fullmatch(name) is None:
            raise InvalidPolicyError(field.name, _NAMES, got=name)


def _check_policy(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, EgressPolicy):
        raise InvalidPolicyError(field.name, "an EgressPolicy", got=value)


@attrs.frozen(kw_only=True)
class ProxyRules:
    """A policy, or less than it: ``origins`` names the only origins that pass, none at all when it is empty, any when it is None.

    ``refuse_hosts`` are refused with all their subdomains, whatever else holds; such a request is told as ``aborted``.
    """

    policy: EgressPolicy = attrs.field(factory=default_policy, validator=_check_policy)
    origins: tuple[str, ...] | None = attrs.field(default=None, converter=_origins)
    refuse_hosts: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_check_names)

    def admit(self, judged: JudgedUrl) -> None:
        """Refuse what the policy allows and these rules do not. Raises EgressDeniedError (DENIED_HOST)."""
        if self.is_aborted(judged.host):
            raise EgressDeniedError(EgressCode.DENIED_HOST, judged.host, rule="refuse-hosts")
        if self.origins is not None and judged.origin not in self.origins:
            raise EgressDeniedError(EgressCode.DENIED_HOST, judged.host, rule="only" if self.origins else "deny-all")

    def is_aborted(self, host: str | None) -> bool:
        """Whether a canonical host is one of ``refuse_hosts`` or below one."""
        return host is not None and any(host == name or host.endswith("." + name) for name in self.refuse_hosts)


def only(origin: str, *, refuse_hosts: Iterable[str] = ()) -> ProxyRules:
    """Pass exactly one loopback origin, "http://127.0.0.1:PORT" or "http://[::1]:PORT", without a look-up; refuse all else.

    Raises InvalidPolicyError.
    """
    return ProxyRules(policy=EgressPolicy(test_loopback_origins=(origin,)), origins=(origin,), refuse_hosts=refuse_hosts)


def deny_all() -> ProxyRules:
    """Refuse everything; every attempt is told."""
    return ProxyRules(origins=())
