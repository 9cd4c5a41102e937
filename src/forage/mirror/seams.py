"""Collaborators of a mirror crawl that touch the world, each replaceable alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs
import trio

from forage.mirror.cache import CacheRoot
from forage.mirror.capture import Capture
from forage.mirror.document import Corpus, RecordDynamic
from forage.mirror.driver import ReadSidecar, Serve, read_sidecar
from forage.mirror.server import open_mirror_server
from forage.mirror.sidecar import DynamicEntry, Sidecar

__all__ = ["LoadCorpus", "Seams"]

LoadCorpus: TypeAlias = Callable[[CacheRoot], Awaitable[Corpus]]


async def _load_corpus(root: CacheRoot) -> Corpus:
    return await trio.to_thread.run_sync(root.load_corpus)


async def _record_dynamic(root: CacheRoot, key: str, entries: Sequence[DynamicEntry]) -> Sidecar:
    return await trio.to_thread.run_sync(root.record_dynamic, key, entries)


@attrs.frozen(kw_only=True)
class Seams:
    """Collaborators of a crawl, each replaceable alone. ``capture`` None: the pass over the archive that the crawl was given."""

    serve: Serve = open_mirror_server
    capture: Capture | None = None
    record_dynamic: RecordDynamic = _record_dynamic
    read_sidecar: ReadSidecar = read_sidecar
    load_corpus: LoadCorpus = _load_corpus
