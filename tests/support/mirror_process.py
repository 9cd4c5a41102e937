"""A mirror crawl in a process of its own, to be killed: ``python -m tests.support.mirror_process SPEC.json``.

Says ``begun`` on standard output when it asks the archive for the first time or renders, whichever comes first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from forage.mirror import BrowserProbe, crawl, open_guarded_archive
from tests.support.browsers import browser_options
from tests.support.network_guard import forbid_traffic

__all__ = ["run"]


async def run(spec: Mapping[str, Any]) -> dict[str, int]:
    """Crawl; gives how many documents ended how."""
    probe = BrowserProbe(browser_options("shell"), min_wait=0.2, quiet=0.2, together=spec["together"])
    async with open_guarded_archive(base=spec["base"]) as fetch:
        print("begun", flush=True)
        report = await crawl(
            spec["keys"],
            root=Path(spec["root"]),
            fetch=fetch,
            probe=probe,
            archive_base=spec["base"],
            delay=0.01,
            attempts=1,
            documents=spec["together"],
        )
    return report.tally


if __name__ == "__main__":
    forbid_traffic()
    print(trio.run(run, json.loads(Path(sys.argv[1]).read_text("utf-8"))), flush=True)
