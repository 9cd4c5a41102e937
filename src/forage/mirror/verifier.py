"""Is a root what it claims to be: every sidecar, body and edge, read again from disk (blocking).

Owns the classes of findings and their fix mode, which deletes only what nothing refers to: bodies without sidecar and left-over scratch
files. Corrupt bodies are for the archive to bring again (``--refetch``). Nothing is followed that is a link.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import attrs

from forage._codec import JsonError, load_json
from forage._files import FileReadError
from forage.mirror.cache import MAX_BODY_BYTES, MAX_SIDECAR_BYTES, CacheRoot, content_hash, utc_text, writing
from forage.mirror.folders import list_folder, open_folder, read_below
from forage.mirror.interstitial import detect_interstitial
from forage.mirror.keys import key_hash, sidecar_path
from forage.mirror.ledgers import Ledgers
from forage.mirror.lock import root_lock
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.requisites import is_page
from forage.mirror.sidecar import CaptureStatus, Sidecar, SidecarError, dynamic_entry_error
from forage.snapshots.javascript import js_integer

__all__ = ["Category", "Finding", "RootReport", "verify_document", "verify_root"]

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


def verify_document(path: Path, key: str) -> tuple[Finding, ...]:
    """What `verify_root` says of a document and of the captures that it names, without a look at anything else."""
    return _Verifier(CacheRoot(path)).document(key)


def verify_root(
    path: Path,
    *,
    fix: bool = False,
    on_sidecar: Callable[[int], None] | None = None,
    visit: Callable[[Sidecar], None] | None = None,
) -> RootReport:
    """Read everything below ``path``. With ``fix`` orphaned bodies and scratch files are deleted, and are no finding any more.

    ``on_sidecar`` is told how many sidecars were read, from 1 again when all is looked at once more; what it raises ends the reading.
    ``visit`` is given each sidecar that is an object and has the name of its key.
    Raises CacheRootError when something could not be deleted, RootBusyError when there is something to delete and another process writes
    the root.
    """
    report = _Verifier(CacheRoot(path), on_sidecar, visit).run()
    if not fix or not report.of(*REAPABLE):
        return report
    Ledgers(path).prepare()
    with root_lock(path, started=utc_text(datetime.now(UTC))):
        # Looked at again: a body whose sidecar a crawl was about to publish is no orphan.
        report = _Verifier(CacheRoot(path), on_sidecar, visit).run()
        with writing():
            for finding in report.of(*REAPABLE):
                _reap(path, str(finding.members["path"]))
    return attrs.evolve(report, findings=tuple(finding for finding in report.findings if finding.category not in REAPABLE))


def _reap(root: Path, name: str) -> None:
    parent, _, own = name.rpartition("/")
    with open_folder(root, parent) as folder:
        facts = folder.lstat(own)
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(own, dir_fd=folder.fd)
        else:
            folder.unlink(own)


class _Verifier:
    def __init__(
        self,
        root: CacheRoot,
        on_sidecar: Callable[[int], None] | None = None,
        visit: Callable[[Sidecar], None] | None = None,
    ) -> None:
        self._root = root
        self._path = root.path
        self._on_sidecar = on_sidecar
        self._visit = visit
        self._present: set[tuple[str, str]] | None = None
        self._findings: list[Finding] = []
        self._hidden: set[str] = set()
        self._bodies = 0

    def run(self) -> RootReport:
        files = [(shard, name) for shard, names in self._shards("meta") for name in names if name.endswith(".json")]
        # What stands there counts as present for bodies and edges, whatever it says.
        self._present = {(shard, name.removesuffix(".json")) for shard, name in files}
        for number, (shard, name) in enumerate(files, start=1):
            self._sidecar(shard, name)
            if self._on_sidecar is not None:
                self._on_sidecar(number)
        cap_files = self._cap_files()
        scratch = self._scratch()
        for name in list_folder(self._path, "") or ():
            if name not in _KNOWN:
                self._add(Category.FOREIGN_ROOT, name=name, path=name)
        counts = {"sidecars": len(files), "bodies": self._bodies, "capFiles": cap_files, "tmpFiles": scratch}
        return RootReport(counts=counts, findings=tuple(self._findings))

    def document(self, key: str) -> tuple[Finding, ...]:
        """One document and its children. A child without sidecar is a finding of the document's."""
        for one in dict.fromkeys([key, *self._children(key)]):
            digest = key_hash(one)
            if self._is_there(one):
                self._sidecar(digest[:2], f"{digest}.json")
        return tuple(self._findings)

    def _children(self, key: str) -> Iterator[str]:
        with contextlib.suppress(SidecarError):
            sidecar = self._root.read_sidecar(key)
            if sidecar is not None:
                yield from filter(is_mirrorable_key, sidecar.children)

    def _is_there(self, key: str) -> bool:
        """True when there is a sidecar, or what stands in its place keeps us from seeing whether there is one."""
        digest = key_hash(key)
        if self._present is not None:
            return (digest[:2], digest) in self._present
        try:
            return read_below(self._path, sidecar_path(digest), MAX_SIDECAR_BYTES) is not None
        except FileReadError:
            return True

    def _shards(self, folder: str) -> Iterator[tuple[str, list[str]]]:
        """Names in each folder of a folder; one that is a link or cannot be listed is a finding. What is no folder holds nothing."""
        for shard in self._names(folder):
            yield shard, self._names(f"{folder}/{shard}")

    def _names(self, folder: str) -> list[str]:
        names = list_folder(self._path, folder)
        if names is None and not _is_plain_file(self._path / folder):
            self._hidden.add(folder.partition("/")[2])
            self._add(Category.MALFORMED, path=folder, error="a link, or a folder that cannot be listed")
        return names or []

    def _scratch(self) -> int:
        names = self._names("tmp")
        for name in names:
            path = self._path / "tmp" / name
            self._add(Category.STALE_TMP, name=name, isDir=path.is_dir() and not path.is_symlink(), path=f"tmp/{name}")
        return len(names)

    def _add(self, category: Category, **members: Any) -> None:
        self._findings.append(Finding(category=category, members=members))

    def _cap_files(self) -> int:
        count = 0
        for shard, names in self._shards("cap"):
            for name in names:
                count += 1
                # Where sidecars cannot be seen, no body may be called an orphan: it would be deleted.
                if (shard, name) not in (self._present or ()) and not self._hidden & {"", shard}:
                    self._add(Category.ORPHAN_CAP, hash=name, aa=shard, path=f"cap/{shard}/{name}")
        return count

    def _sidecar(self, shard: str, name: str) -> None:
        stem = name.removesuffix(".json")
        where = {"hash": stem, "aa": shard}
        path = f"meta/{shard}/{name}"
        try:
            members = load_json((read_below(self._path, path, MAX_SIDECAR_BYTES) or b"").decode("utf-8", "replace"))
        except (FileReadError, JsonError) as exc:
            self._add(Category.MALFORMED, **where, path=path, error="not JSON" if isinstance(exc, JsonError) else "cannot be read")
            return
        if not isinstance(members, dict):
            self._add(Category.MALFORMED, **where, path=path, error="not an object")
            return
        sidecar = Sidecar(members=members)
        where["key"] = sidecar.key
        if js_integer(members.get("v")) not in _VERSIONS:
            self._add(Category.SCHEMA_VERSION, **where, v=members.get("v"))
        if key_hash(sidecar.key) == stem:
            if self._visit is not None:
                self._visit(sidecar)
        else:
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
            body = read_below(self._path, f"cap/{where['aa']}/{where['hash']}", MAX_BODY_BYTES)
        except FileReadError:
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
            if is_mirrorable_key(child) and not self._is_there(child):
                more = {"dynamic": True} if dynamic else {}
                self._add(Category.INCOMPLETE_CLOSURE, **where, child=child, childHash=key_hash(child), **more)


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
