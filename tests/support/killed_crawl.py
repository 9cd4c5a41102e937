"""A crawl that ends its own process in the middle of a put: ``python -m tests.support.killed_crawl SPEC.json``.

The put is the real one; the process is killed from beside it, some milliseconds after it began.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import trio

from forage.crawler import CrawlPolicy, crawl
from forage.egress import DnsAnswers, EgressPolicy
from forage.snapshots import FilesystemSnapshotStore, Snapshot
from tests.support.dialer import MappingDialer
from tests.support.network_guard import forbid_traffic


class FixedResolver:
    """Every name has one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        return DnsAnswers(addresses=(self._address,))


class KillingStore(FilesystemSnapshotStore):
    """The ``nth`` put ends the process ``seconds`` after it began."""

    def __init__(self, root: Path, *, nth: int, seconds: float) -> None:
        super().__init__(root)
        self._left = nth
        self._seconds = seconds

    async def put(self, snapshot: Snapshot) -> None:
        self._left -= 1
        if self._left == 0:
            threading.Timer(self._seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        await super().put(snapshot)
        if self._left == 0:
            await trio.sleep_forever()


async def run(spec: dict[str, Any]) -> None:
    policy = CrawlPolicy(delay=0.0, egress=EgressPolicy(ca_file=Path(spec["ca"])))
    dialer = MappingDialer({spec["address"]: ("127.0.0.1", spec["port"])})
    store = KillingStore(Path(spec["store"]), nth=spec["nth"], seconds=spec["seconds"])
    resolver = FixedResolver(spec["address"])
    await crawl(spec["seed"], policy, store=store, state=Path(spec["state"]), resolver=resolver, dialer=dialer)


if __name__ == "__main__":
    forbid_traffic()
    trio.run(run, json.loads(Path(sys.argv[1]).read_text("utf-8")))
