"""``forage mirror verify``: read every sidecar, body and edge of a mirror again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

import trio

from forage._codec import dump_pretty
from forage.cli.interrupts import INTERRUPTED, interruptible
from forage.cli.mirror_options import LONGEST_DELAY, add_archive_options, add_root_option, require_root
from forage.cli.options import counted, quoted
from forage.errors import CaptureError, InvalidPolicyError

if TYPE_CHECKING:
    from forage.mirror.verifier import RootReport

__all__ = ["add_parser", "run"]

_OTHER_BYTES = "; the archive gives other bytes now: what was verified with the old ones wants to be rendered again (crawl --force)"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser(
        "verify",
        help="check a mirror on disk",
        description=__doc__,
        epilog="exit codes: 0 no finding remains, 1 some do, 2 wrong usage, 11 interrupted",
    )
    add_root_option(parser)
    parser.add_argument("--fix", action="store_true", help="delete bodies without sidecar and scratch files, and nothing else")
    parser.add_argument("--refetch", action="store_true", help="fetch corrupt and missing bodies again")
    parser.add_argument("--delay", type=float, default=1.5, metavar="S", help="seconds between starts of archive requests (default 1.5)")
    add_archive_options(parser)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when no finding remains; the report is one JSON object on standard output."""
    require_root(args.root)
    _check(args)
    report = await interruptible(lambda: _verify(args, err), err, "interrupted: nothing was looked at to its end")
    if report is None:
        return INTERRUPTED
    out.write(dump_pretty(report.to_json()) + "\n")
    if not report.ok:
        print(f"forage mirror verify: {counted(len(report.findings), 'finding')}", file=err)
    return 0 if report.ok else 1


def _check(args: argparse.Namespace) -> None:
    """What only ``--refetch`` needs, before all of the mirror is read. Raises InvalidPolicyError."""
    from forage.mirror.archive import check_archive

    check_archive(args.archive_base, args.contact)
    if not 0 <= args.delay < LONGEST_DELAY:
        raise InvalidPolicyError("--delay", f"seconds from 0, below {LONGEST_DELAY}", got=args.delay)


async def _verify(args: argparse.Namespace, err: TextIO) -> RootReport:
    report = await _read(args)
    if not args.refetch:
        return report
    await _refetch(args, report, err)
    return await _read(args)


async def _read(args: argparse.Namespace) -> RootReport:
    """Everything, in a thread that an interrupt ends between two sidecars."""
    from forage.mirror import verify_root

    def between(_: int) -> None:
        trio.from_thread.check_cancelled()

    return await trio.to_thread.run_sync(lambda: verify_root(args.root, fix=args.fix, on_sidecar=between))


async def _refetch(args: argparse.Namespace, report: RootReport, err: TextIO) -> None:
    """Bring corrupt bodies again, as the one writer of the root."""
    import random
    from datetime import UTC, datetime

    from forage.mirror import CacheRoot
    from forage.mirror.archive import Archive, open_guarded_archive
    from forage.mirror.cache import utc_text
    from forage.mirror.capture import Capturer
    from forage.mirror.ledgers import Ledgers
    from forage.mirror.lock import root_lock
    from forage.mirror.verifier import REFETCHABLE

    def now() -> datetime:
        return datetime.now(UTC)

    root = CacheRoot(args.root)
    keys = dict.fromkeys(str(finding.members["key"]) for finding in report.of(*REFETCHABLE))
    Ledgers(args.root).prepare()
    with root_lock(args.root, started=utc_text(now())):
        async with open_guarded_archive(base=args.archive_base, contact=args.contact) as fetch:
            archive = Archive(fetch, base=args.archive_base, delay=args.delay, random=random.random, utc_now=now)
            capturer = Capturer(root, archive, utc_now=now)
            for key in keys:
                try:
                    sidecar = await trio.to_thread.run_sync(root.read_sidecar, key)
                    if sidecar is not None:
                        fetched = await capturer.refetch(sidecar)
                        same = fetched.content_hash == sidecar.content_hash
                        print(f"{quoted(key)}: fetched again" + ("" if same else _OTHER_BYTES), file=err)
                except CaptureError as exc:
                    print(f"{quoted(key)}: {exc}", file=err)
