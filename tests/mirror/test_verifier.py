"""The verifier: every class of finding on a root that is damaged in just that way, and a fix mode that deletes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forage.mirror.cache import CacheRoot, Entry
from forage.mirror.keys import body_path, key_hash, sidecar_path
from forage.mirror.verifier import Category, verify_root

PAGE = "2012/http://x.org/"
ASSET = "2012/http://x.org/a.png"
NOW = "2026-01-02T03:04:05.000Z"


def filled(root: Path) -> CacheRoot:
    cache = CacheRoot(root)
    cache.commit(Entry(key=PAGE, status="body", content_type="text/html", fetched_at=NOW, requisites=(ASSET,)), b"<p>page</p>")
    cache.commit(Entry(key=ASSET, status="body", content_type="image/png", fetched_at=NOW, flag="im_"), b"PNG")
    return cache


def rewrite(root: Path, **members: object) -> None:
    path = root / sidecar_path(key_hash(PAGE))
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | members), "utf-8")


DAMAGE: list[tuple[Category, Callable[[Path], object]]] = [
    (Category.MALFORMED, lambda root: (root / sidecar_path(key_hash(ASSET))).write_text("[]", "utf-8")),
    (Category.MALFORMED, lambda root: rewrite(root, dynamic={})),
    (Category.MALFORMED, lambda root: rewrite(root, dynamic=[{"key": "x"}])),
    (Category.HASH_MISMATCH, lambda root: (root / body_path(key_hash(ASSET))).write_bytes(b"GIF")),
    (Category.MISSING_BODY, lambda root: (root / body_path(key_hash(ASSET))).unlink()),
    (Category.SCHEMA_VERSION, lambda root: rewrite(root, v=4)),
    (Category.INCOMPLETE_CLOSURE, lambda root: rewrite(root, requisites=["2012/http://x.org/b.png"])),
    (Category.INCOMPLETE_CLOSURE, lambda root: rewrite(root, dynamic=[{"key": "2012/http://x.org/b.png", "via": "manual"}])),
    (Category.FOREIGN_ROOT, lambda root: (root / "notes.txt").write_bytes(b"")),
    (Category.ORPHAN_CAP, lambda root: (root / body_path(key_hash(ASSET))).with_name("x").write_bytes(b"")),
    (Category.STALE_TMP, lambda root: (root / "tmp" / "x.part").write_bytes(b"")),
    (Category.STALE_TMP, lambda root: (root / "tmp" / "folder" / "deep").mkdir(parents=True)),
]


def test_a_sound_root_has_no_findings(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / ".crawl").mkdir()
    report = verify_root(tmp_path)
    assert report.ok
    assert report.counts == {"sidecars": 2, "bodies": 2, "capFiles": 2, "tmpFiles": 0}


@pytest.mark.parametrize(("category", "damage"), DAMAGE)
def test_each_damage_is_one_finding(tmp_path: Path, category: Category, damage: Callable[[Path], object]) -> None:
    filled(tmp_path)
    damage(tmp_path)
    assert [finding.category for finding in verify_root(tmp_path).findings] == [category]


def test_a_misfiled_sidecar_and_a_wrapper_are_named(tmp_path: Path) -> None:
    filled(tmp_path)
    rewrite(tmp_path, key="2012/http://y.org/")
    assert [finding.category for finding in verify_root(tmp_path).findings] == [Category.KEY_MISMATCH]
    other = tmp_path / "other"
    cache = filled(other)
    stub = b"<title>Wayback Machine</title><iframe id=playback>"
    sound = cache.commit(Entry(key=PAGE, status="body", content_type="image/x", fetched_at=NOW), stub)
    (other / sidecar_path(key_hash(PAGE))).write_text(sound.text().replace("image/x", "text/html"), "utf-8")
    assert [finding.category for finding in verify_root(other).findings] == [Category.INTERSTITIAL_AS_BODY]


def test_beacons_are_no_gap(tmp_path: Path) -> None:
    filled(tmp_path)
    rewrite(tmp_path, requisites=["2012/http://www.google-analytics.com/__utm.gif?x", "2012/data:image/png;base64,AA"])
    assert verify_root(tmp_path).ok


def test_fixing_deletes_the_reapable_only(tmp_path: Path) -> None:
    filled(tmp_path)
    for category, damage in DAMAGE:
        if category in {Category.ORPHAN_CAP, Category.STALE_TMP, Category.FOREIGN_ROOT, Category.HASH_MISMATCH}:
            damage(tmp_path)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"")
    (tmp_path / "tmp" / "link").symlink_to(outside)
    report = verify_root(tmp_path, fix=True)
    assert {finding.category for finding in report.findings} == {Category.FOREIGN_ROOT, Category.HASH_MISMATCH}
    assert verify_root(tmp_path).findings == report.findings
    assert not list((tmp_path / "tmp").iterdir())
    assert (outside / "precious").exists()
    assert (tmp_path / "notes.txt").exists()


def test_progress_counts_sidecars(tmp_path: Path) -> None:
    filled(tmp_path)
    seen: list[int] = []
    verify_root(tmp_path, on_sidecar=seen.append)
    assert seen == [1, 2]
