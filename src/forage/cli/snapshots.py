"""``forage snapshots``: look into a store, check it, and prune it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import trio

from forage._codec import dump_compact, is_well_formed
from forage.cli.options import counted, folder, open_store, quoted
from forage.cli.resolve import print_snapshot, say_failure
from forage.errors import FetchErrorKind, InvalidPolicyError, SnapshotStoreError, StoreErrorCode, StoreErrorReason

if TYPE_CHECKING:
    from forage.snapshots import FilesystemSnapshotStore, Lookup, Snapshot
    from forage.snapshots.verify import RecordVerdict

__all__ = ["add_parser", "run"]

_MAX_SAFE_INTEGER = 2**53 - 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("snapshots", help="list, show, verify and prune what a store holds", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _action(actions, "list", "sources of a store, or the history of one, newest first")
    listing.add_argument("source", nargs="?", help="source id: its history instead of all sources")
    showing = _action(actions, "show", "one snapshot: its facts, or its bytes")
    showing.add_argument("what", help="forage-snapshot:... reference, or a source id for its newest snapshot")
    showing.add_argument("--hash", default="", metavar="PREFIX", help="with a source id: the newest whose body hash starts with this")
    showing.add_argument("--body", action="store_true", help="write the bytes that were hashed to standard output, and nothing else")
    checking = _action(actions, "verify", "a verdict on every record; exit code 0 when all are intact")
    checking.add_argument("source", nargs="?", help="source id: check this one alone")
    pruning = _action(actions, "prune", "remove old snapshots of a source, and clear what interrupted writers left")
    pruning.add_argument("source", nargs="?", help="source id")
    pruning.add_argument("--all-sources", action="store_true", help="every source of the store, one after another")
    pruning.add_argument("--keep-last", type=int, required=True, metavar="N", help="keep the newest N (the newest one always stays)")
    pruning.add_argument("--keep", action="append", default=[], metavar="REF", help="also keep what this reference cites (repeatable)")


def _action(actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("store", type=folder, metavar="STORE", help="folder of the store")
    parser.add_argument("--json", action="store_true", help="JSON on standard output, one object a line")
    return parser


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Run one action; exit code 0 when it did what was asked."""
    actions = {"list": _list, "show": _show, "verify": _verify, "prune": _prune}
    return await actions[args.action](args, out, err)


def _write(row: dict[str, object], args: argparse.Namespace, out: TextIO) -> None:
    if args.json:
        out.write(dump_compact(row) + "\n")
    else:
        out.write("  ".join(quoted(str(value)) for value in row.values() if value is not None) + "\n")


# --- list


async def _list(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    from forage.snapshots.verify import verify_source

    store = open_store(args.store, write=False)
    if args.source is not None:
        return await _list_history(store, args, out, err)
    damaged = sources = 0
    for directory in await _directories(args.store, None):
        verdicts = await verify_source(args.store, directory)
        readable = [verdict for verdict in verdicts if verdict.source_id is not None]
        damaged += len(verdicts) - len(readable)
        if readable:
            sources += 1
            _write(_source_row(verdicts, readable), args, out)
    note = f", {counted(damaged, 'record')} damaged or unreadable (see `forage snapshots verify`)" if damaged else ""
    print(f"{counted(sources, 'source')}{note}", file=err)
    return 0


def _source_row(verdicts: tuple[RecordVerdict, ...], readable: list[RecordVerdict]) -> dict[str, object]:
    times = sorted(verdict.fetched_at or "" for verdict in readable)
    bases = sorted({str(verdict.hash_basis) for verdict in readable})
    return {
        "records": len(verdicts),
        "bytes": sum(verdict.size for verdict in verdicts),
        "oldest": times[0],
        "newest": times[-1],
        "hashBasis": "+".join(bases),
        "sourceId": readable[0].source_id,
    }


async def _list_history(store: FilesystemSnapshotStore, args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    await _require_source(args.store, args.source)
    history = await store.list(args.source)
    for snapshot in history:
        _write(_snapshot_row(snapshot), args, out)
    print(counted(len(history), "snapshot"), file=err)
    return 0 if history else 1


async def _require_source(root: Path, source_id: str) -> None:
    """A misspelt source has nothing to list, verify or prune, which must not pass for a good result. Raises SnapshotStoreError."""
    if not await trio.Path(root / _directory(source_id)).exists():
        reason = StoreErrorReason.READ_FAILED
        raise SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, reason, f"the store holds no source {quoted(source_id)}")


def _directory(source_id: str) -> str:
    from forage.snapshots import MAX_SOURCE_ID_UNITS, source_directory

    if not source_id.strip() or not is_well_formed(source_id):
        raise InvalidPolicyError("source", f"1 to {MAX_SOURCE_ID_UNITS} UTF-16 units of text that is not blank", got=source_id)
    return source_directory(source_id)


def _snapshot_row(snapshot: Snapshot) -> dict[str, object]:
    from forage.snapshots import body_bytes, build_source_ref, snapshot_hash_basis

    return {
        "fetchedAt": snapshot.fetched_at,
        "status": snapshot.status,
        "bodyBytes": len(body_bytes(snapshot)),
        "hashBasis": snapshot_hash_basis(snapshot).value,
        "bodyHash": snapshot.body_hash,
        "url": snapshot.url,
        "sourceRef": build_source_ref(snapshot),
    }


# --- show


async def _show(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    from forage.snapshots import ReplayFailure, resolve_source_ref

    store = open_store(args.store, write=False)
    if args.what.startswith("forage-snapshot:"):
        if args.hash:
            raise InvalidPolicyError("--hash", "a source id beside it; a reference names its hash itself", got=args.hash)
        result = await resolve_source_ref(store, args.what)
        if result.error is not None:
            say_failure("forage snapshots show", result.error, {"sourceRef": args.what}, args, out, err)
            return 1
        print_snapshot(result.unwrap(), args, out, integrity=result.integrity)
        return 0
    snapshot = await (store.get(args.what, args.hash) if args.hash else store.latest(args.what))
    if snapshot is None:
        hint = " (is it a URL of a crawl? `forage snapshots list STORE` shows the ids)" if not args.hash else ""
        error = ReplayFailure(kind=FetchErrorKind.NO_SNAPSHOT, message=f"the store holds none for this source id and hash{hint}")
        say_failure("forage snapshots show", error, {"sourceId": args.what}, args, out, err)
        return 1
    print_snapshot(snapshot, args, out)
    return 0


# --- verify


async def _directories(root: Path, source_id: str | None) -> tuple[str, ...]:
    from forage.snapshots.verify import source_directories

    return await source_directories(root) if source_id is None else (_directory(source_id),)


async def _verify(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    from forage.snapshots.verify import verify_source

    open_store(args.store, write=False)
    if args.source is not None:
        await _require_source(args.store, args.source)
    counts: dict[str, int] = {}
    for directory in await _directories(args.store, args.source):
        for verdict in await verify_source(args.store, directory):
            counts[verdict.verdict] = counts.get(verdict.verdict, 0) + 1
            row: dict[str, object] = {
                "verdict": verdict.verdict.value,
                "reason": None if verdict.reason is None else verdict.reason.value,
                "record": f"{verdict.directory}/{verdict.name}",
                "sourceId": verdict.source_id,
            }
            _write(row, args, out)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no records", file=err)
    return 0 if set(counts) <= {"intact"} else 1


# --- prune


async def _prune(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    from forage.snapshots import FilesystemSnapshotStore
    from forage.snapshots.verify import recorded_ceiling

    if (args.source is None) is not args.all_sources:
        raise InvalidPolicyError("snapshots prune", "a source id, or --all-sources")
    if not 0 <= args.keep_last <= _MAX_SAFE_INTEGER:
        raise InvalidPolicyError("--keep-last", f"a whole number from 0 to {_MAX_SAFE_INTEGER}", got=args.keep_last)
    keep = [_cited(reference) for reference in args.keep]
    if args.source is not None:
        _refuse_foreign([args.source], keep)
    open_store(args.store, write=True, make=False)
    if args.source is not None:
        await _require_source(args.store, args.source)
    failed = 0
    sources = await _sources_to_prune(args, err)
    _refuse_foreign(sources, keep)
    for source_id in sources:
        try:
            # Slots depend on the ceiling that the source has on record.
            store = FilesystemSnapshotStore(args.store, max_history_files=await recorded_ceiling(args.store, source_id))
            result = await store.prune(source_id, keep_last=args.keep_last, keep=keep)
        except SnapshotStoreError as exc:
            failed += 1
            print(f"forage snapshots prune: {quoted(source_id)}: {exc}", file=err)
        else:
            _write({"removed": result.removed, "retained": result.retained, "sourceId": source_id}, args, out)
    return 1 if failed else 0


def _cited(reference: str) -> Lookup:
    from forage.snapshots import parse_source_ref

    ref = parse_source_ref(reference)
    if ref is None or not ref.canonical:
        raise InvalidPolicyError("--keep", "a canonical forage-snapshot: reference", got=reference)
    return ref.lookup


def _refuse_foreign(source_ids: Sequence[str], keep: Sequence[Lookup]) -> None:
    """A reference of a source that is not pruned keeps nothing; its writer meant another source. Raises InvalidPolicyError."""
    for lookup in keep:
        if lookup.source_id not in source_ids:
            raise InvalidPolicyError("--keep", "references of a source that is pruned", got=lookup.source_id)


async def _sources_to_prune(args: argparse.Namespace, err: TextIO) -> list[str]:
    if args.source is not None:
        return [args.source]
    from forage.snapshots.verify import verify_source

    found: list[str] = []
    for directory in await _directories(args.store, None):
        verdicts = await verify_source(args.store, directory)
        source_id = next((verdict.source_id for verdict in verdicts if verdict.source_id is not None), None)
        if source_id is not None:
            found.append(source_id)
        elif verdicts:
            print(f"forage snapshots prune: nothing readable in {quoted(verdicts[0].directory)}; left alone", file=err)
    return found
