"""Is a root what it claims to be: every sidecar, body and edge, read again from disk (blocking).

Owns the classes of findings and their fix mode, which deletes only what nothing refers to: bodies without sidecar and left-over scratch
files. Corrupt bodies are for the archive to bring again (``--refetch``). Nothing is followed that is a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import attrs

from forage._codec import JsonError, load_json
from forage.mirror.cache import CacheRoot, CacheRootError, content_hash, writing
from forage.mirror.interstitial import detect_interstitial
from forage.mirror.keys import key_hash
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.requisites import is_page
from forage.mirror.sidecar import CaptureStatus, Sidecar, dynamic_entry_error
from forage.snapshots.javascript import js_integer

__all__ = ["Category", "Finding", "RootReport", "verify_root"]

_KNOWN: Final = frozenset(["cap", "meta", "tmp", ".refetch", ".crawl", "remaster.build.json"])
_VERSIONS: Final = (1, 2, 3)


class Category(StrEnum):
    """Classes of findings."""

    MALFORMED = "malformed"
    HASH_MISMATCH = "hashMismatch"
    KEY_MISMATCH = "keyMismatch"
    MISSING_BODY = "missingBody"
    INCOMPLETE_CLOSURE = "incompleteClosure"
    INTERSTITIAL_AS_BODY = "interstitialAsBody"
    SCHEMA_VERSION = "schemaVersion"
    FOREIGN_ROOT = "foreignRoot"
    ORPHAN_CAP = "orphanCap"
    STALE_TMP = "staleTmp"


CORRUPTION: Final = (Category.MALFORMED, Category.HASH_MISMATCH, Category.KEY_MISMATCH, Category.MISSING_BODY)
REFETCHABLE: Final = (Category.HASH_MISMATCH, Category.MISSING_BODY)
REAPABLE: Final = (Category.ORPHAN_CAP, Category.STALE_TMP)


@attrs.frozen(kw_only=True)
class Finding:
    """One finding; ``members`` say where and what."""

    category: Category
    members: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class RootReport:
    """What a root holds and what is wrong with it."""

    counts: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def of(self, *categories: Category) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.category in categories)

    def to_json(self) -> dict[str, Any]:
        rows = {category.value: [dict(finding.members) for finding in self.of(category)] for category in Category}
        return {"counts": dict(self.counts), "findings": rows}


def verify_root(path: Path, *, fix: bool = False, on_sidecar: Callable[[int], None] | None = None) -> RootReport:
    """Read everything below ``path``. With ``fix`` orphaned bodies and scratch files are deleted, and are no finding any more.

    ``on_sidecar`` is told how many sidecars were read. Raises CacheRootError when something could not be deleted.
    """
    verifier = _Verifier(CacheRoot(path), on_sidecar)
    report = verifier.run()
    if not fix:
        return report
    for finding in report.of(*REAPABLE):
        _reap(path / str(finding.members["path"]))
    return attrs.evolve(report, findings=tuple(finding for finding in report.findings if finding.category not in REAPABLE))


def _reap(path: Path) -> None:
    with writing():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Verifier:
    def __init__(self, root: CacheRoot, on_sidecar: Callable[[int], None] | None) -> None:
        self._root = root
        self._path = root.path
        self._on_sidecar = on_sidecar
        self._findings: list[Finding] = []
        self._bodies = 0

    def run(self) -> RootReport:
        files = list(self._root.sidecar_files())
        # What stands there counts as present for bodies and edges, whatever it says.
        self._present = {(file.parent.name, file.stem) for file in files}
        for number, file in enumerate(files, start=1):
            self._sidecar(file)
            if self._on_sidecar is not None:
                self._on_sidecar(number)
        cap_files = self._cap_files()
        scratch = sorted(_scan(self._path / "tmp"), key=lambda entry: entry.name)
        for entry in scratch:
            is_dir = entry.is_dir(follow_symlinks=False)
            self._add(Category.STALE_TMP, name=entry.name, isDir=is_dir, path=f"tmp/{entry.name}")
        for entry in sorted(_scan(self._path), key=lambda entry: entry.name):
            if entry.name not in _KNOWN:
                self._add(Category.FOREIGN_ROOT, name=entry.name, path=entry.name)
        counts = {"sidecars": len(files), "bodies": self._bodies, "capFiles": cap_files, "tmpFiles": len(scratch)}
        return RootReport(counts=counts, findings=tuple(self._findings))

    def _add(self, category: Category, **members: Any) -> None:
        self._findings.append(Finding(category=category, members=members))

    def _cap_files(self) -> int:
        count = 0
        for shard in sorted(_scan(self._path / "cap"), key=lambda entry: entry.name):
            for entry in sorted(_scan(Path(shard.path)), key=lambda entry: entry.name):
                count += 1
                if (shard.name, entry.name) not in self._present:
                    self._add(Category.ORPHAN_CAP, hash=entry.name, aa=shard.name, path=f"cap/{shard.name}/{entry.name}")
        return count

    def _sidecar(self, file: Path) -> None:
        where = {"hash": file.stem, "aa": file.parent.name}
        path = f"meta/{file.parent.name}/{file.name}"
        try:
            members = load_json((self._root.read_file(path) or b"").decode("utf-8", "replace"))
        except (CacheRootError, JsonError) as exc:
            self._add(Category.MALFORMED, **where, path=path, error="not JSON" if isinstance(exc, JsonError) else "cannot be read")
            return
        if not isinstance(members, dict):
            self._add(Category.MALFORMED, **where, path=path, error="not an object")
            return
        sidecar = Sidecar(members=members)
        where["key"] = sidecar.key
        if js_integer(members.get("v")) not in _VERSIONS:
            self._add(Category.SCHEMA_VERSION, **where, v=members.get("v"))
        if key_hash(sidecar.key) != file.stem:
            self._add(Category.KEY_MISMATCH, **where, derived=key_hash(sidecar.key))
        self._check_dynamic(sidecar, where, path)
        if sidecar.status == CaptureStatus.BODY:
            self._bodies += 1
            self._check_body(sidecar, where)
            self._check_closure(sidecar, where)

    def _check_dynamic(self, sidecar: Sidecar, where: Mapping[str, str], path: str) -> None:
        rows = sidecar.members.get("dynamic", [])
        if not isinstance(rows, list):
            self._add(Category.MALFORMED, **where, path=path, error="dynamic is not a list")
            return
        for index, row in enumerate(rows):
            reason = dynamic_entry_error(row)
            if reason is not None:
                self._add(Category.MALFORMED, **where, path=path, error=f"malformed dynamic entry: {reason}", index=index)

    def _check_body(self, sidecar: Sidecar, where: Mapping[str, str]) -> None:
        try:
            body = self._root.read_file(f"cap/{where['aa']}/{where['hash']}")
        except CacheRootError:
            body = None
        if body is None:
            self._add(Category.MISSING_BODY, **where)
            return
        actual = content_hash(body)
        if actual != sidecar.content_hash:
            self._add(Category.HASH_MISMATCH, **where, expected=sidecar.content_hash, actual=actual)
        text = body.decode("utf-8", "replace") if is_page(sidecar.content_type) else None
        found = detect_interstitial(sidecar.key, sidecar.content_type, text)
        if found is not None:
            self._add(Category.INTERSTITIAL_AS_BODY, **where, signature=found.signature.value)

    def _check_closure(self, sidecar: Sidecar, where: Mapping[str, str]) -> None:
        edges = dict.fromkeys(sidecar.requisites, False)
        for entry in sidecar.dynamic:
            edges.setdefault(entry.key, True)
        for child, dynamic in edges.items():
            digest = key_hash(child)
            if is_mirrorable_key(child) and (digest[:2], digest) not in self._present:
                more = {"dynamic": True} if dynamic else {}
                self._add(Category.INCOMPLETE_CLOSURE, **where, child=child, childHash=digest, **more)


def _scan(path: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        yield from entries
