"""The npm package of the same formats as a peer: found, started, given work as JSON and asked for JSON.

    mkdir peer && cd peer && npm install @kontourai/forage node@24

and give that folder as ``--npm``. Nothing is downloaded here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import attrs

__all__ = ["HOW_TO", "Peer", "find_peer"]

PACKAGE = "node_modules/@kontourai/forage"
HOW_TO = "no npm peer: in some folder run `npm install @kontourai/forage node@24`, then give the folder as --npm"

_PRELUDE = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const base = pathToFileURL(process.argv[2] + "/dist/src/").href;
const { createFilesystemSnapshotStore, replaySource } = await import(base + "snapshot-store.js");
const { buildSnapshotSourceRef, resolveSnapshotSourceRef } = await import(base + "provenance.js");
const work = JSON.parse(readFileSync(0, "utf8"));
const revive = (s) => {
  if (!("bodyBase64" in s)) return s;
  const { bodyBase64, ...rest } = s;
  return { ...rest, body: new Uint8Array(Buffer.from(bodyBase64, "base64")) };
};
const plain = (s) => (typeof s.body === "string" ? s : { ...s, body: undefined, bodyBase64: Buffer.from(s.body).toString("base64") });
"""


@attrs.frozen
class Peer:
    """An installed package and a node that runs it."""

    node: str
    package: Path
    version: str

    def run(self, script: str, work: object) -> Any:
        """Run ``script`` (a module; ``work``, ``revive`` and ``plain`` are there) and give what it prints, read as JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "peer.mjs"
            path.write_text(_PRELUDE + script)
            command = [self.node, str(path), str(self.package)]
            done = subprocess.run(command, input=json.dumps(work), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout)


def find_peer(folder: Path | None) -> Peer | None:
    """The peer installed below ``folder``; None when it, or a node of version 22 or newer, is not there."""
    if folder is None or not (folder / PACKAGE / "package.json").exists():
        return None
    for node in (str(folder / "node_modules/.bin/node"), shutil.which("node")):
        if node is None or not Path(node).exists():
            continue
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        if int(version.lstrip("v").split(".", 1)[0] or 0) >= 22:
            package = (folder / PACKAGE).resolve()
            return Peer(node, package, json.loads((package / "package.json").read_text())["version"])
    return None
