"""From an answer to the snapshot that is kept of it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

import trio

from forage.fetch.answer import Answer, without_query
from forage.snapshots import Snapshot, build_snapshot, decodes_quickly

__all__ = ["received_snapshot", "recorded_time", "snapshot_of"]

# What may be decoded between two turns of the event loop: in the worst of all charsets and bodies, and in those of any length in C.
_INLINE_BYTES: Final = 16 * 1024
_INLINE_QUICK_BYTES: Final = 1024 * 1024


def recorded_time(moment: datetime) -> str:
    """An instant as the formats write it: ISO-8601 UTC, milliseconds, Z."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


async def received_snapshot(
    answer: Answer, *, url: str, source_id: str, fetched_at: datetime, redirects: tuple[str, ...], threads: trio.CapacityLimiter
) -> tuple[Snapshot, tuple[str, ...]]:
    """`snapshot_of`, in a thread where it could take long: one page must not make the deadlines of all others pass.

    ``threads`` bounds how many, since they share one interpreter. A cancel does not wait for such a thread: it touches nothing but
    its answer, ends by itself, and keeps its place in ``threads`` until then.
    """
    make = partial(snapshot_of, answer, url=url, source_id=source_id, fetched_at=fetched_at, redirects=redirects)
    types = answer.values("content-type")
    quick = decodes_quickly(types[-1] if types else None)
    if len(answer.body or b"") <= (_INLINE_QUICK_BYTES if quick else _INLINE_BYTES):
        return make()
    return await trio.to_thread.run_sync(make, abandon_on_cancel=True, limiter=threads)


def snapshot_of(
    answer: Answer, *, url: str, source_id: str, fetched_at: datetime, redirects: tuple[str, ...]
) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot of a whole answer, and warnings. Raises InvalidSnapshotError when it cannot be kept in the durable form."""
    types = answer.values("content-type")
    snapshot, notes = build_snapshot(
        source_id=source_id,
        url=url,
        status=answer.status or 0,
        fetched_at=recorded_time(fetched_at),
        body=answer.body or b"",
        body_sha256=_sha256_of_wire(answer),
        content_type=types[-1] if types else None,
        headers=_header_map(answer),
        redirects=redirects or None,
    )
    return snapshot, (*_doubts(answer, types), *(f"charset: {without_query(url)}: {note}" for note in notes))


def _sha256_of_wire(answer: Answer) -> str | None:
    """The hash of the body that the wire took while reading it: of the same bytes where no content coding was on them."""
    facts = answer.facts
    if facts is None or answer.body is None or b"content-encoding" in answer.fields or facts.encoded_bytes != len(answer.body):
        return None
    return facts.encoded_sha256 or None


def _doubts(answer: Answer, types: list[str]) -> list[str]:
    doubts = []
    if answer.status == 206:
        doubts.append("partial-content: the server answered 206 to a request for the whole")
    if b"vary" in answer.fields and "*" in (answer.header("vary") or ""):
        doubts.append("vary-star: the answer varies by everything; its validators are not used")
    if len(set(types)) > 1:
        doubts.append("duplicate-content-type: the answer has several; the last one decides")
    return doubts


def _header_map(answer: Answer) -> dict[str, str]:
    """Lower-case names; repeated fields joined by a comma and a space, cookies by a comma alone, as the formats record them."""
    found: dict[str, str] = {}
    for key, value in answer.headers:
        name, text = key.decode("latin-1").lower(), value.decode("latin-1")
        glue = "," if name == "set-cookie" else ", "
        found[name] = f"{found[name]}{glue}{text}" if name in found else text
    return found
