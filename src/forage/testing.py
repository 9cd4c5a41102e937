"""The suite that a snapshot store must pass, for stores that users of forage write.

Owns the checks of `SnapshotStore` and of its optional parts (`ExactLookup`, `Prunable`), which run where the store has them. It needs
no test framework: a check is an async function that takes a fresh, empty store and raises AssertionError, saying which rule is broken.

With pytest and its trio plugin::

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    async def test_my_store(check):
        await check(MyStore())

or all of them at once, with a function that makes an empty store: ``await check_snapshot_store(MyStore)``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from forage.errors import InvalidSnapshotError, SourceRefErrorCode
from forage.snapshots import (
    ExactLookup,
    FindKind,
    Integrity,
    Lookup,
    Prunable,
    Snapshot,
    SnapshotStore,
    build_snapshot,
    build_source_ref,
    format_source_ref,
    lookup_of,
    replay_source,
    resolve_source_ref,
)
from forage.snapshots.model import sha256_hex

__all__ = ["STORE_CHECKS", "StoreCheck", "check_snapshot_store", "sample_snapshot"]

StoreCheck = Callable[[SnapshotStore], Awaitable[None]]


def sample_snapshot(number: int = 0, *, source_id: str = "source", body: str | bytes | None = None, **members: Any) -> Snapshot:
    """A durable snapshot; ``number`` (0 to 59) is the minute of its time. ``members`` replace fields; the body hash is computed."""
    body = f"body {number}" if body is None else body
    fields = {
        "source_id": source_id,
        "url": "https://example.test/a",
        "status": 200,
        "fetched_at": f"2026-09-01T00:{number:02d}:00.000Z",
        "body": body,
        "body_hash": sha256_hex(body.encode() if isinstance(body, str) else body),
    }
    return Snapshot(**{**fields, **members})


def _expect(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)


def _expect_equal(got: object, wanted: object, rule: str) -> None:
    if got != wanted:
        raise AssertionError(f"{rule}: got {got!r:.300}, expected {wanted!r:.300}")


async def _expect_refused(call: Callable[[], Awaitable[object]], rule: str) -> None:
    try:
        await call()
    except InvalidSnapshotError:
        return
    raise AssertionError(f"InvalidSnapshotError expected: {rule}")


# --- the required part


async def empty_store_has_nothing(store: SnapshotStore) -> None:
    """Reading an unknown source is no error."""
    _expect_equal(await store.latest("source"), None, "latest of an unknown source")
    _expect_equal(await store.list("source"), (), "list of an unknown source")
    _expect_equal(await store.get("source", ""), None, "get of an unknown source")
    _expect(not (await replay_source(store, "source")).ok, "an unknown source cannot be replayed")


def _varied() -> tuple[Snapshot, ...]:
    decoded, _ = build_snapshot(
        source_id="source",
        url="https://example.test/b?c=d&e=%20#f",
        status=404,
        fetched_at="2026-09-01T00:10:00.000Z",
        body="café".encode("cp1252"),
        content_type="text/html; charset=windows-1252",
        headers={"content-type": "text/html; charset=windows-1252", "x-ünï": "\u2028\U0001f600", "2": "b", "1": "a"},
        redirects=("https://example.test/first",),
    )
    return (
        sample_snapshot(1, body=""),
        sample_snapshot(2, body=b"\x00\xff\x05"),
        sample_snapshot(3, body="\u0000\u001f\u007f\u2028\U0001f600 \"\\/'"),
        sample_snapshot(4, headers={}, redirects=(), rendered=False),
        sample_snapshot(5, rendered=True, status=-1),
        sample_snapshot(6, body="x" * 1_500_000),
        sample_snapshot(7, body=bytes(range(256)) * 5000),
        decoded,
    )


async def what_is_put_is_returned(store: SnapshotStore) -> None:
    """Text, bytes, text with its bytes, absent and empty members: all come back as they were put."""
    for snapshot in _varied():
        await store.put(snapshot)
        _expect_equal(await store.latest("source"), snapshot, "latest after put")
        _expect_equal(await store.get("source", snapshot.body_hash), snapshot, "get after put")
    _expect_equal(await store.list("source"), tuple(reversed(_varied())), "list after several puts")


async def history_is_newest_first(store: SnapshotStore) -> None:
    """By time, then body hash, then digest, as texts of UTF-16 units; the order of the puts does not matter."""
    times = ["2026-09-01T00:00:00Z", "2026-09-01T00:00:00.5Z", "yesterday \ue000", "yesterday \U0001f600", "2026-09-01T00:00:00.500Z"]
    for at in times:
        await store.put(sample_snapshot(fetched_at=at))
    got = [snapshot.fetched_at for snapshot in await store.list("source")]
    _expect_equal(got, [times[2], times[3], times[0], times[1], times[4]], "order of a history")
    _expect_equal((await store.get("source", "")) and (await store.latest("source")), await store.get("source", ""), "latest is the head")


async def equal_times_are_ordered_by_hash_and_digest(store: SnapshotStore) -> None:
    """Several snapshots of one moment keep a fixed order."""
    snapshots = [sample_snapshot(body=body, headers=headers) for body in ("a", "b", "c") for headers in (None, {}, {"a": "b"})]
    for snapshot in snapshots:
        await store.put(snapshot)
    keys = [(s.body_hash, lookup_of(s).snapshot_digest or "") for s in await store.list("source")]
    _expect_equal(keys, sorted(keys, reverse=True), "order of snapshots of one time")
    _expect_equal(len(set(keys)), len(snapshots), "every envelope is kept")


async def get_takes_a_prefix(store: SnapshotStore) -> None:
    """The newest whose body hash starts with it; the empty prefix gives the newest of all."""
    old, new = sample_snapshot(1, body="same"), sample_snapshot(2, body="same")
    head = sample_snapshot(3, body="other")
    for snapshot in (new, head, old):
        await store.put(snapshot)
    _expect_equal(await store.get("source", old.body_hash[:12]), new, "get by a prefix")
    _expect_equal(await store.get("source", ""), head, "get by the empty prefix")
    _expect_equal(await store.get("source", "zz"), None, "get by a prefix of nothing")


async def putting_again_succeeds(store: SnapshotStore) -> None:
    """A retry after a lost answer is no error."""
    snapshot = sample_snapshot()
    await store.put(snapshot)
    await store.put(snapshot)
    _expect_equal(set(await store.list("source")), {snapshot}, "history after the same put twice")


async def sources_are_apart(store: SnapshotStore) -> None:
    """Also those whose ids look alike in a file name."""
    ids = ["a b", "a/b", "a-b", "A-B", "a-b-", "..", "/", "ü", "\U0001f600", "x" * 1024]
    for number, source_id in enumerate(ids):
        await store.put(sample_snapshot(number, source_id=source_id))
    for number, source_id in enumerate(ids):
        _expect_equal(await store.list(source_id), (sample_snapshot(number, source_id=source_id),), f"history of {source_id[:20]!r}")


async def undurable_snapshots_are_refused(store: SnapshotStore) -> None:
    """And nothing of them is kept."""
    good = sample_snapshot()
    bad = {
        "a hash of something else": attrs.evolve(good, body_hash="0" * 64),
        "a lone surrogate": attrs.evolve(good, url="https://example.test/\ud800"),
        "an empty source id": attrs.evolve(good, source_id=""),
        "a url beyond 8192 units": attrs.evolve(good, url="https://example.test/" + "\U0001f600" * 4096),
        "a charset without bytes": attrs.evolve(good, declared_charset="utf-8"),
        "a time that only looks like ISO-8601": attrs.evolve(good, fetched_at="2026-09-01T00 00:00.000Z"),
    }
    for why, snapshot in bad.items():
        await _expect_refused(lambda snapshot=snapshot: store.put(snapshot), why)  # type: ignore[misc]  # bound at once
    _expect_equal(await store.list("source"), (), "history after refused puts")


async def the_mark_of_revalidation_is_not_kept(store: SnapshotStore) -> None:
    """``not_modified`` says how a snapshot was come by, not what it is."""
    await store.put(sample_snapshot(not_modified=True))
    _expect_equal(await store.latest("source"), sample_snapshot(), "what is kept of a revalidated snapshot")


async def puts_side_by_side_are_all_kept(store: SnapshotStore) -> None:
    """Of one source and of several."""
    snapshots = [sample_snapshot(number, source_id=f"source {number % 3}") for number in range(24)]
    async with trio.open_nursery() as nursery:
        for snapshot in snapshots:
            nursery.start_soon(store.put, snapshot)
    kept = [snapshot for number in range(3) for snapshot in await store.list(f"source {number}")]
    _expect_equal(len(kept), len(snapshots), "number of snapshots kept")
    _expect_equal(set(kept), set(snapshots), "snapshots kept")


async def cancelled_puts_leave_a_sound_store(store: SnapshotStore) -> None:
    """A put that is cancelled has happened or has not; the store goes on."""
    for number in range(10):
        with trio.move_on_after(0.0005 * number):
            await store.put(sample_snapshot(number))
    for number in range(10):
        await store.put(sample_snapshot(number))
    _expect_equal({s.fetched_at for s in await store.list("source")}, {sample_snapshot(n).fetched_at for n in range(10)}, "history")


# --- looking up exactly


async def exact_lookup_finds_what_was_put(store: SnapshotStore) -> None:
    """By digest and, as the 0.3 generation cited, by identity alone."""
    if not isinstance(store, ExactLookup):
        return
    for snapshot in _varied():
        await store.put(snapshot)
    for snapshot in _varied():
        for lookup in (lookup_of(snapshot), lookup_of(snapshot, released=True)):
            found = await store.find_exact(lookup)
            _expect_equal((found.kind, found.snapshot), (FindKind.FOUND, snapshot), "exact look-up")
    absent = attrs.evolve(lookup_of(sample_snapshot(1, body="")), snapshot_digest="0" * 64)
    _expect_equal((await store.find_exact(absent)).kind, FindKind.MISSING, "look-up of a digest that is not there")
    elsewhere = attrs.evolve(lookup_of(sample_snapshot(1, body="")), url="https://example.test/elsewhere")
    _expect_equal((await store.find_exact(elsewhere)).kind, FindKind.MISMATCH, "look-up of a digest with another url")


async def impossible_lookups_are_refused(store: SnapshotStore) -> None:
    """Before the store is searched."""
    if not isinstance(store, ExactLookup):
        return
    good = lookup_of(sample_snapshot())
    bad = [
        attrs.evolve(good, body_hash=good.body_hash[:12]),
        attrs.evolve(good, snapshot_digest="A" * 64),
        attrs.evolve(good, source_id=""),
        attrs.evolve(good, url="x" * 8193),
        attrs.evolve(good, snapshot_digest=None, url="x" * 1_048_577),
    ]
    for lookup in bad:
        await _expect_refused(lambda lookup=lookup: store.find_exact(lookup), repr(lookup)[:200])  # type: ignore[misc]  # bound at once


async def references_resolve(store: SnapshotStore) -> None:
    """To the same bytes, or to the reason why not."""
    if not isinstance(store, ExactLookup):
        result = await resolve_source_ref(store, build_source_ref(sample_snapshot()))
        _expect_equal(result.error and result.error.kind, SourceRefErrorCode.SNAPSHOT_STORE_ERROR, "resolving without exact look-up")
        return
    for snapshot in _varied():
        await store.put(snapshot)
        result = await resolve_source_ref(store, build_source_ref(snapshot))
        _expect_equal((result.snapshot, result.integrity), (snapshot, Integrity.SNAPSHOT_ENVELOPE), "resolving a reference")
        result = await resolve_source_ref(store, format_source_ref(lookup_of(snapshot, released=True)))
        _expect_equal((result.snapshot, result.integrity), (snapshot, Integrity.BODY_AND_IDENTITY), "resolving a 0.3 reference")
    result = await resolve_source_ref(store, build_source_ref(sample_snapshot(59)))
    _expect_equal(result.error and result.error.kind, SourceRefErrorCode.SNAPSHOT_NOT_FOUND, "resolving what was never put")


# --- pruning


async def prune_keeps_head_newest_and_named(store: SnapshotStore) -> None:
    """And nothing else; what is left still resolves."""
    if not isinstance(store, Prunable):
        return
    snapshots = [sample_snapshot(number) for number in range(8)]
    for snapshot in snapshots:
        await store.put(snapshot)
    await store.put(sample_snapshot(source_id="other"))
    named: list[Lookup] = [lookup_of(snapshots[1]), lookup_of(snapshots[3], released=True), lookup_of(sample_snapshot(50))]
    result = await store.prune("source", keep_last=2, keep=named)
    _expect_equal((result.removed, result.retained), (4, 4), "counts of a prune")
    kept = (snapshots[7], snapshots[6], snapshots[3], snapshots[1])
    _expect_equal(await store.list("source"), kept, "history after a prune")
    if isinstance(store, ExactLookup):
        for snapshot in snapshots:
            result_of = await resolve_source_ref(store, build_source_ref(snapshot))
            _expect_equal(result_of.ok, snapshot in kept, "resolving after a prune")
    result = await store.prune("source", keep_last=0)
    _expect_equal((result.removed, result.retained), (3, 1), "counts of a prune that keeps the head alone")
    _expect_equal(await store.latest("source"), snapshots[7], "the head is never removed")
    _expect_equal(len(await store.list("other")), 1, "another source")
    result = await store.prune("unknown", keep_last=1)
    _expect_equal((result.removed, result.retained), (0, 0), "counts of a prune of nothing")
    await store.put(snapshots[0])
    _expect_equal(await store.list("source"), (snapshots[7], snapshots[0]), "history after a put that follows a prune")


async def prune_counts_distinct_snapshots(store: SnapshotStore) -> None:
    """Two envelopes of one identity are two; the same snapshot put twice is one."""
    if not isinstance(store, Prunable):
        return
    first, second = sample_snapshot(headers={"a": "1"}), sample_snapshot(headers={"a": "2"})
    for snapshot in (first, second, first):
        await store.put(snapshot)
    result = await store.prune("source", keep_last=1)
    _expect_equal((result.removed, result.retained), (1, 1), "counts of a prune")
    head = await store.latest("source")
    if isinstance(store, ExactLookup) and head is not None:
        found = await store.find_exact(lookup_of(head, released=True))
        _expect_equal(found.snapshot, head, "the identity leads to the envelope that is left")


async def impossible_prunes_are_refused(store: SnapshotStore) -> None:
    """Before anything is removed."""
    if not isinstance(store, Prunable):
        return
    await store.put(sample_snapshot(1))
    await store.put(sample_snapshot(2))
    calls: list[dict[str, Any]] = [
        {"keep_last": -1},
        {"keep_last": 1.5},
        {"keep_last": True},
        {"keep_last": 2**53},
        {"keep_last": 0, "keep": {}},
        {"keep_last": 0, "keep": [attrs.evolve(lookup_of(sample_snapshot(1)), body_hash="abc")]},
    ]
    for options in calls:
        await _expect_refused(lambda options=options: store.prune("source", **options), repr(options)[:200])  # type: ignore[misc]
    await _expect_refused(lambda: store.prune("", keep_last=1), "an empty source id")
    _expect_equal(len(await store.list("source")), 2, "history after refused prunes")


STORE_CHECKS: tuple[StoreCheck, ...] = (
    empty_store_has_nothing,
    what_is_put_is_returned,
    history_is_newest_first,
    equal_times_are_ordered_by_hash_and_digest,
    get_takes_a_prefix,
    putting_again_succeeds,
    sources_are_apart,
    undurable_snapshots_are_refused,
    the_mark_of_revalidation_is_not_kept,
    puts_side_by_side_are_all_kept,
    cancelled_puts_leave_a_sound_store,
    exact_lookup_finds_what_was_put,
    impossible_lookups_are_refused,
    references_resolve,
    prune_keeps_head_newest_and_named,
    prune_counts_distinct_snapshots,
    impossible_prunes_are_refused,
)
"""Every check, to be run each on a store of its own."""


async def check_snapshot_store(make_store: Callable[[], SnapshotStore]) -> None:
    """Run every check on a fresh, empty store from ``make_store``. AssertionError says which rule of which check is broken."""
    for check in STORE_CHECKS:
        try:
            await check(make_store())
        except AssertionError as exc:
            name = getattr(check, "__name__", "check")
            raise AssertionError(f"{name}: {exc}") from exc
