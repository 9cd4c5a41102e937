"""What callers give to a fetcher, looked at before anything is asked for.

Types are looked at: callers are not trusted to keep them. The options that are plain values are checked by ``settings``, the parts of the
guard by the egress session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from forage._codec import is_well_formed, units
from forage.egress import EgressPolicy
from forage.errors import FetchErrorKind, InvalidPolicyError
from forage.fetch.result import FetchFailure, FetchResult, Source
from forage.fetch.settings import Render, is_agent, is_byte_limit
from forage.snapshots import MAX_SOURCE_ID_UNITS

__all__ = ["check_parts", "refused_call", "refused_result"]


def check_parts(egress: object, renderer: object) -> None:
    """Raise InvalidPolicyError for a guard or a browser that is none."""
    if egress is not None and not isinstance(egress, EgressPolicy):
        raise InvalidPolicyError("egress", "an EgressPolicy", got=egress)
    if renderer is not None and not callable(getattr(renderer, "render", None)):
        raise InvalidPolicyError("renderer", "an object with the method render", got=renderer)


def refused_call(source: object, *, store: object, max_response_bytes: object, render: object, obey_robots: object) -> FetchResult | None:
    """The result of a call that is wrong, None for one that is not."""
    if not isinstance(source, Source):
        return refused_result(source, "source: takes a URL as text, or a Source")
    said = _wrong_source(source) or _wrong_choice(store, max_response_bytes, render, obey_robots)
    if said is not None:
        return refused_result(source, said)
    url: object = source.url
    if not isinstance(url, str):
        failure = FetchFailure(kind=FetchErrorKind.INVALID_URL, message="source.url: takes text")
        return FetchResult(source_id=source.id, url=source.url, error=failure)
    return None


def refused_result(source: object, message: str) -> FetchResult:
    """A result of kind ``invalid-config``; without id and URL where ``source`` is none."""
    failure = FetchFailure(kind=FetchErrorKind.INVALID_CONFIG, message=message)
    if isinstance(source, str):
        return FetchResult(source_id=source, url=source, error=failure)
    given = source if isinstance(source, Source) else Source(id="", url="")
    return FetchResult(source_id=given.id, url=given.url, error=failure)


def _wrong_source(source: Any) -> str | None:
    named = source.id
    if not (isinstance(named, str) and named.strip() and units(named) <= MAX_SOURCE_ID_UNITS and is_well_formed(named)):
        return f"source.id: takes 1 to {MAX_SOURCE_ID_UNITS} UTF-16 units of text that is not blank"
    if not _is_header_map(source.headers):
        return "source.headers: takes a mapping of names to values, both text"
    if source.user_agent is not None and not is_agent(source.user_agent):
        return "source.user_agent: takes printable ASCII text"
    return None if isinstance(source.revalidate, bool) else "source.revalidate: takes True or False"


def _wrong_choice(store: object, max_response_bytes: object, render: object, obey_robots: object) -> str | None:
    if store is not None and not callable(getattr(store, "latest", None)):
        return "store: takes a snapshot store, or None"
    if not is_byte_limit(max_response_bytes):
        return "max_response_bytes: takes a whole number above 0, or None"
    if render is not None and render not in get_args(Render):
        return f"render: takes {', '.join(map(repr, get_args(Render)))} or None"
    return None if obey_robots is None or isinstance(obey_robots, bool) else "obey_robots: takes True, False or None"


def _is_header_map(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
