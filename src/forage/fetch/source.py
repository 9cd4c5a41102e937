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
    """Acquire one source and return what came of it, a snapshot or an error; nothing is raised for operational trouble or a bad option.

    With a ``fetcher`` its robots, clocks and connections are used, and ``options`` are those of `Fetcher.fetch`. Without one a fetcher
    lives for this call, and ``options`` are those of `Fetcher`: then nothing is remembered, and two calls in a row are not
    paced. ``store`` is asked for the latest snapshot and never written to.
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
