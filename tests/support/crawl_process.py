"""A crawl in a process of its own, to be killed: ``python -m tests.support.crawl_process SPEC.json``.

Says ``begun`` on standard output when it opens its first connection, and writes the manifest to the file that the specification names.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import trio

from forage.crawler import CrawlPolicy, crawl
from forage.egress import EgressPolicy
from forage.snapshots import FilesystemSnapshotStore
from tests.support.dialer import RecordingDialer
from tests.support.network_guard import forbid_traffic


class _Announcing(RecordingDialer):
    async def dial(self, address: str, port: int) -> socket.socket:
        if not self.dialled:
            print("begun", flush=True)
        return await super().dial(address, port)


async def run(spec: dict[str, Any]) -> None:
    egress = EgressPolicy(allow_networks=("127.0.0.0/8",), ports=tuple(spec["ports"]))
    policy = CrawlPolicy(egress=egress, **spec["policy"])
    store = FilesystemSnapshotStore(Path(spec["store"]))
    manifest = await crawl(spec["seed"], policy, store=store, state=Path(spec["state"]), dialer=_Announcing())
    await trio.Path(spec["manifest"]).write_text(manifest.to_json(), "utf-8")


if __name__ == "__main__":
    forbid_traffic()
    trio.run(run, json.loads(Path(sys.argv[1]).read_text("utf-8")))
