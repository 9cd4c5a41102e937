"""``forage mirror demo``: mirror a small web from an archive on loopback, check it, and show what was kept."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import trio

from forage.cli.mirror_options import add_probe_options, open_probe
from forage.cli.options import counted

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser("demo", help="mirror a bundled web from a loopback archive", description=__doc__)
    add_probe_options(parser)
    parser.set_defaults(min_wait=0.5)  # nothing in the bundled web is later than that


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when everything came out as it must. Without a browser the documents are captured and not verified."""
    with TemporaryDirectory(prefix="forage-mirror-") as folder:
        return await _demonstrate(Path(folder), args, out, err)


async def _demonstrate(root: Path, args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    from forage.mirror import crawl, verify_root
    from forage.mirror.archive import open_guarded_archive
    from forage.mirror.demo_web import NAMES, captures, document_url
    from forage.mirror.loopback import Fault, LoopbackArchive, open_loopback_archive

    probe = open_probe(args)
    renders = await probe.available()
    # One answer that asks for patience, so that the account below has a retry in it.
    archive = LoopbackArchive(captures(), faults={"http://site.example.org/bg.png": [Fault(status=429, retry_after="1")]})
    async with open_loopback_archive(archive) as base, open_guarded_archive(base=base) as fetch:
        report = await crawl(
            [document_url(name) for name in NAMES],
            root=root,
            fetch=fetch,
            probe=probe,
            archive_base=base,
            delay=0.02,
            static_only=not renders,
        )
    out.writelines(f"{result.status.value:10}  {result.key}\n" for result in report.results)
    checked = await trio.to_thread.run_sync(verify_root, root)
    counts = checked.counts
    requests, kept = counted(report.request_count, "archive request"), counted(counts["sidecars"], "capture")
    out.write(f"{requests}, {kept} kept, {counted(len(checked.findings), 'finding')} on disk\n")
    if not renders:
        print("no browser: captured only. What scripts and styles ask for was not looked at, so nothing is verified", file=err)
    return 0 if report.ok and checked.ok else 1
