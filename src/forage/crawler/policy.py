"""What a crawl is asked to do: seed and policy, checked before anything starts.

Pure. Owns defaults, limits and their validation; the egress policy and its checks belong to `forage.egress`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from ipaddress import IPv4Network, IPv6Network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import ada_url
import attrs

from forage._codec import dump_compact, is_well_formed
from forage.egress import EgressPolicy
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.crawler.frontier import FollowContext
    from forage.crawler.links import Link

__all__ = ["CrawlPolicy", "Discovery", "Mode", "Render", "RobotsOnError", "Seed", "describe_policy", "describe_seed"]

Discovery = Literal["links", "sitemap", "both"]
Mode = Literal["live", "replay"]
Render = Literal["never", "on-shell", "always"]
RobotsOnError = Literal["deny", "allow"]
GroupBy = Literal["host", "address"]

ShouldFollow = Callable[["Link", "FollowContext"], "bool | float"]

_Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _whole(low: int, high: int | None = None, *, optional: bool = False) -> _Validator:
    accepted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    if optional:
        accepted += ", or None for no limit"

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if optional and value is None:
            return
        if type(value) is not int or value < low or (high is not None and value > high):
            raise InvalidPolicyError(attribute.name, accepted, got=value)

    return check


def _seconds(*, optional: bool = False, zero: bool = True) -> _Validator:
    accepted = "seconds as a number of at least 0" if zero else "seconds as a number above 0"
    if optional:
        accepted += ", or None for no limit"

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if optional and value is None:
            return
        good = type(value) in (int, float) and math.isfinite(value) and (value >= 0 if zero else value > 0)
        if not good:
            raise InvalidPolicyError(attribute.name, accepted, got=value)

    return check


def _one_of(choices: object, *, optional: bool = False) -> _Validator:
    names = get_args(choices)
    accepted = ", ".join(repr(name) for name in names[:-1]) + f" or {names[-1]!r}"

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not (optional and value is None) and not (isinstance(value, str) and value in names):
            raise InvalidPolicyError(attribute.name, accepted, got=value)

    return check


def _flag(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise InvalidPolicyError(attribute.name, "True or False", got=value)


def _egress(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, EgressPolicy):
        raise InvalidPolicyError(attribute.name, "an EgressPolicy", got=value)


def _callable(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (not callable(value) or iscoroutinefunction(value)):
        raise InvalidPolicyError(attribute.name, "None or a function of a link and its context, not an async one", got=value)


def _agent(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    good = value is None or (isinstance(value, str) and value.isascii() and value.isprintable() and value.strip() == value != "")
    if not good:
        raise InvalidPolicyError(attribute.name, "None or printable ASCII text", got=value)


def _header_map(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise InvalidPolicyError("headers", "a mapping of header names to values, both text", got=value)
    return MappingProxyType(dict(value))


def _seed_url(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    accepted = "an absolute http or https URL with its scheme, such as https://site.example/"
    if not isinstance(value, str) or not value.strip():
        raise InvalidPolicyError("seed.url", accepted, got=value)
    try:
        scheme = ada_url.URL(value).protocol
    except ValueError:
        raise InvalidPolicyError("seed.url", accepted, got=value) from None
    if scheme not in ("http:", "https:"):
        raise InvalidPolicyError("seed.url", accepted, got=value)


def _seed_id(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip() or not is_well_formed(value)):
        raise InvalidPolicyError("seed.id", "None or text that is not blank and holds no lone surrogate", got=value)


@attrs.frozen(kw_only=True)
class Seed:
    """Where a crawl starts.

    ``url`` absolute http(s) URL; ``headers`` go to the seed's origin only, never along a redirect to another; ``user_agent``
    goes to every host of the crawl; ``id`` replaces the seed's URL in the source ids of its pages; ``max_response_bytes`` overrides the
    policy for all pages of this seed, ``render`` for the seed's own page. Raises InvalidPolicyError.
    """

    url: str = attrs.field(validator=_seed_url)
    headers: Mapping[str, str] = attrs.field(factory=dict, converter=_header_map)
    user_agent: str | None = attrs.field(default=None, validator=_agent)
    id: str | None = attrs.field(default=None, validator=_seed_id)
    render: Render | None = attrs.field(default=None, validator=_one_of(Render, optional=True))
    max_response_bytes: int | None = attrs.field(default=None, validator=_whole(1, optional=True))


@attrs.frozen(kw_only=True)
class CrawlPolicy:
    """How a crawl behaves. Durations are seconds, sizes bytes; every default is the polite and safe one.

    ``max_pages`` counts attempts, failures included; ``delay`` runs from request start to request start on one host;
    ``concurrency`` bounds requests in flight over all hosts, ``per_host`` those on one host; ``window`` is how many entries the order
    of commits may run ahead, part of what makes the manifest the same at any concurrency. ``max_seconds`` is the one budget outside that
    promise. ``soft_404_probe`` asks each origin once for a page that cannot exist and flags the pages that look the same.
    Beyond ``frontier_in_memory`` known URLs the frontier lives in a temporary database on disk.
    ``should_follow(link, context)`` answers False (skipped as ``filtered``), True, or a number: higher first. What its ``description``
    says, where it has one, stands in the manifest.
    Raises InvalidPolicyError, which names the field and what it takes.
    """

    max_pages: int = attrs.field(default=20, validator=_whole(0))
    max_depth: int = attrs.field(default=2, validator=_whole(0))
    max_bytes: int | None = attrs.field(default=None, validator=_whole(1, optional=True))
    max_seconds: float | None = attrs.field(default=None, validator=_seconds(optional=True, zero=False))
    max_failures: int | None = attrs.field(default=None, validator=_whole(0, optional=True))
    max_response_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_whole(1, 64 * 1024 * 1024))
    discovery: Discovery = attrs.field(default="links", validator=_one_of(Discovery))
    render: Render = attrs.field(default="never", validator=_one_of(Render))
    mode: Mode = attrs.field(default="live", validator=_one_of(Mode))
    same_host: bool = attrs.field(default=True, validator=_flag)
    follow_nofollow: bool = attrs.field(default=False, validator=_flag)
    soft_404_probe: bool = attrs.field(default=False, validator=_flag)
    should_follow: ShouldFollow | None = attrs.field(default=None, validator=_callable)
    obey_robots: bool = attrs.field(default=True, validator=_flag)
    robots_on_error: RobotsOnError = attrs.field(default="deny", validator=_one_of(RobotsOnError))
    delay: float = attrs.field(default=1.0, validator=_seconds())
    max_crawl_delay: float = attrs.field(default=60.0, validator=_seconds())
    max_retry_wait: float = attrs.field(default=120.0, validator=_seconds())
    retries: int = attrs.field(default=2, validator=_whole(0, 5))
    attempt_seconds: float = attrs.field(default=15.0, validator=_seconds(zero=False))
    concurrency: int = attrs.field(default=1, validator=_whole(1, 1024))
    per_host: int = attrs.field(default=1, validator=_whole(1, 64))
    group_by: GroupBy = attrs.field(default="host", validator=_one_of(GroupBy))
    window: int = attrs.field(default=64, validator=_whole(1, 100_000))
    frontier_in_memory: int = attrs.field(default=2_000_000, validator=_whole(1))
    keep_bodies: bool = attrs.field(default=True, validator=_flag)
    user_agent: str | None = attrs.field(default=None, validator=_agent)
    egress: EgressPolicy = attrs.field(factory=EgressPolicy, validator=_egress)


_WITHOUT_EFFECT = frozenset({"concurrency", "frontier_in_memory", "keep_bodies"})


def describe_policy(policy: CrawlPolicy) -> dict[str, Any]:
    """The settings in force as JSON values, camelCase, for the manifest. Functions and TLS contexts show as ``custom``, or as what their
    ``description`` says.

    Left out are those that cannot change what a crawl finds: how many requests are in flight, and whether bodies stay in memory.
    """
    return {_camel(f.name): _describe(getattr(policy, f.name)) for f in attrs.fields(CrawlPolicy) if f.name not in _WITHOUT_EFFECT}


def describe_seed(seed: Seed) -> str:
    """A text that differs where seeds differ in what they may find; it holds the headers as they are, secrets too."""
    headers = sorted((name.lower(), value) for name, value in seed.headers.items())
    return dump_compact([seed.url, headers, seed.user_agent, seed.render, seed.max_response_bytes])


def _describe(value: Any) -> Any:
    if attrs.has(type(value)):
        return {_camel(f.name): _describe(getattr(value, f.name)) for f in attrs.fields(type(value)) if not f.name.startswith("_")}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list | set | frozenset):
        return [_describe(item) for item in value]
    if isinstance(value, IPv4Network | IPv6Network):
        return str(value)
    description = getattr(value, "description", None)
    return description if isinstance(description, str) else "custom"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
