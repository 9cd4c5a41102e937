"""A nursery whose errors leave a crawl as they were raised.

Owns the one form in which an error of a caller's function comes out of `crawl`, `crawl_stream` and `crawl_many` alike: itself, or, where
several were raised at the same moment, one ExceptionGroup of them. How many nurseries a crawl is made of is no business of its caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["unwrapped_nursery"]


@asynccontextmanager
async def unwrapped_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery that raises the only exception of its tasks as it is; a group is that of its own tasks, never a group of one group."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        raised = group.exceptions[0] if len(group.exceptions) == 1 else group
        raise raised from raised.__cause__
