"""Folders written out and read back as mappings of path to content, in the form of the store vectors."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["lay_out", "paths", "read_tree"]


def lay_out(root: Path, tree: Mapping[str, Any]) -> None:
    """Make files of ``{"text"}``, ``{"base64"}``, ``{"symlink"}`` or ``{"dir"}``; then their ages, because a file touches its folder."""
    for name, entry in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.get("dir"):
            path.mkdir(exist_ok=True)
        elif "symlink" in entry:
            path.symlink_to(entry["symlink"])
        elif "base64" in entry:
            path.write_bytes(base64.b64decode(entry["base64"]))
        else:
            path.write_bytes(entry["text"].encode("utf-8", "surrogatepass"))
    now = time.time()
    for name, entry in tree.items():
        if "ageSeconds" in entry:
            at = now - entry["ageSeconds"]
            os.utime(root / name, (at, at), follow_symlinks=False)


def read_tree(root: Path) -> dict[str, dict[str, object]]:
    """Everything below ``root``; of folders, the empty ones."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = {"symlink": str(path.readlink())}
        elif path.is_dir():
            if not any(path.iterdir()):
                found[name] = {"dir": True}
        else:
            data = path.read_bytes()
            try:
                found[name] = {"text": data.decode()}
            except UnicodeDecodeError:
                found[name] = {"base64": base64.b64encode(data).decode()}
    return found


def paths(root: Path) -> set[str]:
    """Names of everything below ``root``, relative to it."""
    return {str(path.relative_to(root)) for path in root.rglob("*")}
