"""``forage resolve``: what a source reference cites, from a store, or exactly why it does not resolve."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from forage._codec import dump_compact
from forage.cli.options import folder, open_store, quoted

if TYPE_CHECKING:
    from forage.snapshots import ReplayFailure, ResolutionFailure, Snapshot

__all__ = ["add_parser", "print_snapshot", "run", "say_failure"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("resolve", help="resolve a source reference", description=__doc__)
    parser.add_argument("reference", help="forage-snapshot:...")
    parser.add_argument("--store", type=folder, metavar="DIR", required=True, help="the store that holds it (required)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--body", action="store_true", help="write the bytes that were hashed to standard output, and nothing else")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when the reference resolves, else 1 with the reason."""
    from forage.snapshots import resolve_source_ref

    result = await resolve_source_ref(open_store(args.store, write=False), args.reference)
    if result.snapshot is None:
        error = result.error
        assert error is not None
        say_failure("forage resolve", error, {"sourceRef": args.reference}, args, out, err)
        return 1
    print_snapshot(result.snapshot, args, out, integrity=result.integrity)
    return 0


def print_snapshot(
    snapshot: Snapshot,
    args: argparse.Namespace,
    out: TextIO,
    *,
    integrity: str | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """A snapshot as text, JSON or bare bytes, as the flags ask. ``more`` are members for the JSON form alone."""
    from forage.snapshots import body_bytes, build_source_ref, snapshot_hash_basis

    body = body_bytes(snapshot)
    if args.body:
        out.flush()
        out.buffer.write(body)
        return
    row: dict[str, object] = {
        "url": snapshot.url,
        "status": snapshot.status,
        "fetchedAt": snapshot.fetched_at,
        "sourceId": snapshot.source_id,
        "bodyHash": snapshot.body_hash,
        "hashBasis": snapshot_hash_basis(snapshot).value,
        "bodyBytes": len(body),
        "rendered": bool(snapshot.rendered),
        "redirects": list(snapshot.redirects or ()),
        "sourceRef": build_source_ref(snapshot),
    }
    if integrity is not None:
        row["integrity"] = str(integrity)
    if args.json:
        out.write(dump_compact({**row, **more}) + "\n")
        return
    texts = {name: " ".join(value) if isinstance(value, list) else str(value) for name, value in row.items()}
    out.writelines(f"{name}: {quoted(text)}\n" for name, text in texts.items() if text)


def say_failure(
    name: str, error: ResolutionFailure | ReplayFailure, about: Mapping[str, object], args: argparse.Namespace, out: TextIO, err: TextIO
) -> None:
    """Why there is no snapshot: a line for a person, and with ``--json`` an object with ``about`` in it."""
    if args.json:
        out.write(dump_compact({**about, "error": error.kind.value, "message": error.message}) + "\n")
    print(f"{name}: {error.kind}: {quoted(error.message)}", file=err)
