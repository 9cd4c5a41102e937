"""The choices of a fetcher, checked when they are made (pure)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import attrs

from forage.errors import InvalidPolicyError
from forage.fetch.robots_outcome import DEFAULT_MAX_AGE

if TYPE_CHECKING:
    from forage.fetch.politeness import OnPause, OnWait

__all__ = [
    "DEFAULT_ACCEPT",
    "DEFAULT_USER_AGENT",
    "FetchSettings",
    "GroupBy",
    "OpenOrClosed",
    "Render",
    "is_agent",
    "is_byte_limit",
    "utc_now",
]

DEFAULT_USER_AGENT: Final = "forage/0.1"
DEFAULT_ACCEPT: Final = "text/html,application/xhtml+xml,text/plain,*/*"

Render = Literal["never", "on-shell", "always"]
OpenOrClosed = Literal["deny", "allow"]
GroupBy = Literal["host", "address"]

_LONGEST_WAIT = 7 * 86_400.0
_MOST_RETRIES = 5
_SAFE_INTEGER = 2**53 - 1

_Validator: TypeAlias = "Callable[[Any, attrs.Attribute[Any], Any], None]"


def utc_now() -> datetime:
    """The wall clock, for recorded times only."""
    return datetime.now(UTC)


def is_byte_limit(value: object) -> bool:
    """Whether a value may limit the bytes of a response: a positive integer that every reader of the formats can hold, or None."""
    return value is None or (type(value) is int and 0 < value <= _SAFE_INTEGER)


def _check(accepted: str, holds: Callable[[Any], bool]) -> _Validator:
    def validate(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not holds(value):
            raise InvalidPolicyError(field.name, accepted, got=value)

    return validate


def _seconds(*, zero: bool) -> _Validator:
    accepted = f"seconds {'from' if zero else 'above'} 0, at most {_LONGEST_WAIT:.0f}"

    def holds(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and (0 if zero else 1e-9) <= value <= _LONGEST_WAIT

    return _check(accepted, holds)


def _one_of(choices: Any) -> _Validator:
    names = get_args(choices)
    return _check(" or ".join(map(repr, names)), lambda value: value in names)


def _whole(least: int, most: int) -> _Validator:
    return _check(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def is_agent(value: Any) -> bool:
    """Whether a value may be sent as User-Agent."""
    return isinstance(value, str) and value.isascii() and value.isprintable() and value.strip() == value != "" and len(value) <= 512


_FLAG = _check("True or False", lambda value: type(value) is bool)
_CALLABLE = _check("a function", callable)


def _clamp_retries(value: Any) -> Any:
    return max(0, min(value, _MOST_RETRIES)) if type(value) is int else value


@attrs.frozen(kw_only=True)
class FetchSettings:
    """Every option of `Fetcher` with its default; see there. Raises InvalidPolicyError, which names the field."""

    user_agent: str = attrs.field(default=DEFAULT_USER_AGENT, validator=_check("printable ASCII text of at most 512 characters", is_agent))
    delay: float = attrs.field(default=1.0, validator=_seconds(zero=True))
    per_host: int = attrs.field(default=1, validator=_whole(1, 64))
    concurrency: int | None = attrs.field(default=None, validator=attrs.validators.optional(_whole(1, 1024)))
    resumed: bool = attrs.field(default=False, validator=_FLAG)
    group_by: GroupBy = attrs.field(default="host", validator=_one_of(GroupBy))
    max_crawl_delay: float = attrs.field(default=60.0, validator=_seconds(zero=True))
    max_retry_wait: float = attrs.field(default=120.0, validator=_seconds(zero=True))
    retries: int = attrs.field(default=2, converter=_clamp_retries, validator=_whole(0, _MOST_RETRIES))
    attempt_seconds: float = attrs.field(default=15.0, validator=_seconds(zero=False))
    idle_seconds: float = attrs.field(
        default=math.inf, validator=_check("seconds above 0, or infinity", lambda v: type(v) in (int, float) and v > 0)
    )
    max_response_bytes: int | None = attrs.field(
        default=None, validator=_check(f"a whole number from 1 to {_SAFE_INTEGER}, or None", is_byte_limit)
    )
    keep_error_bodies: bool = attrs.field(default=False, validator=_FLAG)
    cookies: bool = attrs.field(default=True, validator=_FLAG)
    obey_robots: bool = attrs.field(default=True, validator=_FLAG)
    robots_on_error: OpenOrClosed = attrs.field(default="deny", validator=_one_of(OpenOrClosed))
    robots_access_denied: OpenOrClosed = attrs.field(default="allow", validator=_one_of(OpenOrClosed))
    robots_max_age: float = attrs.field(default=DEFAULT_MAX_AGE, validator=_seconds(zero=False))
    render: Render = attrs.field(default="never", validator=_one_of(Render))
    render_seconds: float = attrs.field(default=30.0, validator=_seconds(zero=False))
    on_wait: OnWait | None = attrs.field(default=None, validator=attrs.validators.optional(_CALLABLE))
    on_pause: OnPause | None = attrs.field(default=None, validator=attrs.validators.optional(_CALLABLE))
    utc_now: Callable[[], datetime] = attrs.field(default=utc_now, validator=_CALLABLE)
    random: Callable[[], float] = attrs.field(default=random.random, validator=_CALLABLE)
