"""`fetch_source`: one acquisition in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forage.errors import InvalidPolicyError
from forage.fetch.checks import refused_result
from forage.fetch.fetcher import Fetcher
from forage.fetch.result import FetchResult, Source

if TYPE_CHECKING:
    from forage.snapshots import SnapshotStore

__all__ = ["fetch_source"]


async def fetch_source(
    source: Source | str,
    *,
    fetcher: Fetcher | None = None,
    store: SnapshotStore | None = None,
    max_response_bytes: int | None = None,
    **options: Any,
) -> FetchResult:
    """Acquire one source and return what came of it: ``result.snapshot`` or ``result.error``; ``result.unwrap()`` raises the latter.

    A text is a source whose id is its URL. ``store`` is asked for the latest snapshot, to make the request conditional, and never written
    to. ``max_response_bytes`` of the decoded body, 64 MiB by default.

    Without ``fetcher`` one lives for this call, and ``options`` are those of `Fetcher` (``egress``, ``delay``, ``obey_robots``, ...): then
    nothing is remembered, and two calls in a row are not paced. With one, its robots, clocks and connections are used, and ``options`` are
    those of `Fetcher.fetch` (``render``, ``obey_robots``).

    Operational trouble and a wrong value are errors of the result (``invalid-config`` for the latter). TypeError for an unknown option.
    """
    given: object = fetcher  # types are looked at: callers are not trusted to keep them
    if given is not None and not isinstance(given, Fetcher):
        return refused_result(source, "fetcher: takes a Fetcher, or None")
    if fetcher is not None:
        return await fetcher.fetch(source, store=store, max_response_bytes=max_response_bytes, **options)
    try:
        own = Fetcher(**options)
    except InvalidPolicyError as exc:
        return refused_result(source, str(exc))
    async with own:
        return await own.fetch(source, store=store, max_response_bytes=max_response_bytes)
