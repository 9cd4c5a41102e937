"""What a mirror is worth at this moment: which documents are verified, and still are on disk (blocking).

A stamp says that a document was complete when it was rendered. It holds for as long as the bytes do, so everything that ``verify`` looks at
is read here, too: a document is verified when a stamp covers it and nothing is wrong with its own files or with those of its children. Owns
which findings break which document; finding them is ``verifier``'s. It writes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forage._codec import utf16_key
from forage.mirror.cache import CacheRoot
from forage.mirror.gate import Reason
from forage.mirror.keys import is_key, key_hash
from forage.mirror.ledgers import Ledgers
from forage.mirror.localize import RULE_VERSION, Dialect, dialect_of
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.results import DocumentStatus
from forage.mirror.sidecar import CaptureStatus, Sidecar, SidecarError
from forage.mirror.verifier import CORRUPTION, REAPABLE, Category, Finding, RootReport, verify_root

__all__ = ["ABSENT", "BODILESS", "breakage", "harmful", "is_unfinished", "mirror_status"]

ABSENT: Final = "absent"
NOT_RENDERED: Final = "not-rendered"
BODILESS: Final = "bodiless"
# Nothing of what these name is served, so no document depends on it.
_HARMLESS: Final = (*REAPABLE, Category.FOREIGN_ROOT)
_CORRUPT: Final = (*CORRUPTION, Category.SCHEMA_VERSION)


def harmful(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that concern what a mirror serves."""
    return tuple(finding for finding in findings if finding.category not in _HARMLESS)


def breakage(key: str, findings: Iterable[Finding], *, stamped: bool) -> str | None:
    """How findings about a document and its children break it, None when they do not.

    What is missing is no news of a document that no stamp calls complete: why it is not verified is said by its last render.
    """
    own = key_hash(key)
    found = {f.category for f in findings if f.category is not Category.INCOMPLETE_CLOSURE or f.members.get("hash") == own}
    if found & set(_CORRUPT):
        return DocumentStatus.CORRUPT.value
    if not stamped:
        return None
    if Category.INCOMPLETE_CLOSURE in found:
        return Reason.INCOMPLETE_CLOSURE.value
    return CaptureStatus.INTERSTITIAL.value if found else None


def is_unfinished(flaky: Mapping[str, Any] | None, asked: Mapping[str, Any] | None) -> bool:
    """True when the latest run of a document that is not verified ended before it was rendered."""
    if asked is None or not isinstance(asked.get("status"), str):
        return False
    return flaky is None or str(asked.get("at")) >= str(flaky.get("at"))


def mirror_status(root: Path, keys: Sequence[str] = (), *, on_sidecar: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Documents of a root, or these alone: how many are verified, and why the others are not.

    A document is an HTML capture, and whatever a run was asked for. ``on_sidecar`` as in `verify_root`. Raises CacheRootError when the
    crawler's records cannot be read.
    """
    # Read before the files: what is stamped by now has all its files by now, whoever goes on writing.
    ledgers = Ledgers(root)
    stamps, flaky, asked = ledgers.verified(RULE_VERSION), ledgers.flaky(), ledgers.asked()
    named = dict.fromkeys(keys) or set(filter(is_key, [*stamps, *flaky, *asked]))
    held: dict[str, str] = {}

    def visit(sidecar: Sidecar) -> None:
        if sidecar.key in named or (not keys and _is_document(sidecar)):
            held[sidecar.key] = sidecar.status

    report = verify_root(root, on_sidecar=on_sidecar, visit=visit)
    damage = _Damage(CacheRoot(root), report)
    unverified = []
    documents = list(named) if keys else sorted({*named, *held}, key=utf16_key)
    for key in documents:
        stamped = key in stamps
        reason = damage.of(key, stamped=stamped)
        if reason is None and stamped:
            reason = ABSENT if key not in held else None if held[key] == CaptureStatus.BODY else BODILESS
        elif reason is None:
            reason = _unverified(flaky.get(key), asked.get(key)) or (NOT_RENDERED if key in held else ABSENT)
        if reason is not None:
            unverified.append({"key": key, "reason": reason})
    return {
        "documents": len(documents),
        "verified": len(documents) - len(unverified),
        "ruleVersion": RULE_VERSION,
        "reasons": dict(Counter(row["reason"] for row in unverified).most_common()),
        "unverified": unverified,
        "findings": dict(Counter(finding.category.value for finding in harmful(report.findings)).most_common()),
    }


def _unverified(flaky: Mapping[str, Any] | None, asked: Mapping[str, Any] | None) -> str | None:
    if asked is not None and is_unfinished(flaky, asked):
        return str(asked["status"])
    return None if flaky is None else str(flaky.get("reason"))


def _is_document(sidecar: Sidecar) -> bool:
    return sidecar.status == CaptureStatus.BODY and dialect_of(sidecar.content_type) is Dialect.HTML


class _Damage:
    """Findings of a root by the capture that they are about. Where there are none nothing is read."""

    def __init__(self, root: CacheRoot, report: RootReport) -> None:
        self._root = root
        self._of: dict[str, list[Finding]] = defaultdict(list)
        self._hidden: set[str] = set()
        for finding in harmful(report.findings):
            digest = finding.members.get("hash")
            if isinstance(digest, str):
                self._of[digest].append(finding)
            else:
                self._hidden.add(str(finding.members.get("path")))

    def of(self, key: str, *, stamped: bool) -> str | None:
        """How a document is broken, None when it is not."""
        if not self._of and not self._hidden:
            return None
        digest = key_hash(key)
        if self._hidden & {"meta", f"meta/{digest[:2]}"}:
            return DocumentStatus.CORRUPT.value
        digests = [digest, *map(key_hash, self._children(key))] if self._of else []
        return breakage(key, [finding for one in digests for finding in self._of.get(one, ())], stamped=stamped)

    def _children(self, key: str) -> Sequence[str]:
        try:
            sidecar = self._root.read_sidecar(key)
        except SidecarError:
            return ()
        return () if sidecar is None else [child for child in sidecar.children if is_mirrorable_key(child)]
