"""``forage snapshots`` as a process: what it lists, what it refuses, and that a look changes nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trio

from forage.snapshots import FilesystemSnapshotStore, build_snapshot, build_source_ref
from tests.cli.test_commands import COMMAND, forage

URL = "https://site.test/"


async def keep(root: Path, source_id: str, at: str = "2026-01-02T03:04:05.000Z") -> str:
    """Keep one page, and give its reference."""
    snapshot, _ = build_snapshot(source_id=source_id, url=URL, status=200, fetched_at=at, body=at.encode(), content_type="text/plain")
    await FilesystemSnapshotStore(root).put(snapshot)
    return build_source_ref(snapshot)


async def test_a_history_shows_the_reference_of_each_snapshot(tmp_path: Path) -> None:
    reference = await keep(tmp_path, "a")
    for flags in ([], ["--json"]):
        listed = await forage("snapshots", "list", tmp_path, "a", *flags)
        assert reference in listed.out
        assert listed.err == "1 snapshot\n"
    assert (await forage("snapshots", "list", tmp_path)).err == "1 source\n"


@pytest.mark.parametrize("action", [["list"], ["verify"], ["prune", "--keep-last", "1"]])
async def test_a_source_that_the_store_does_not_hold_is_said(tmp_path: Path, action: list[str]) -> None:
    await keep(tmp_path, "a")
    done = await forage("snapshots", *action, tmp_path, "typo")
    assert done.code == 1
    assert done.err == f"forage snapshots {action[0]}: the store holds no source typo\n"


async def test_a_prune_of_no_store_makes_none(tmp_path: Path) -> None:
    for what in ["a"], ["--all-sources"]:
        done = await forage("snapshots", "prune", tmp_path / "typo", *what, "--keep-last", 1)
        assert done.code == 1
        assert "typo is not a folder that can be written" in done.err
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("which", [["a"], ["--all-sources"]])
async def test_a_prune_keeps_no_reference_of_a_source_that_is_not_pruned(tmp_path: Path, which: list[str]) -> None:
    await keep(tmp_path, "a")
    await keep(tmp_path, "a", "2026-01-03T00:00:00.000Z")
    other = await keep(tmp_path / "other", "b")
    done = await forage("snapshots", "prune", tmp_path, *which, "--keep-last", 1, "--keep", other)
    assert done.code == 2
    assert "--keep: takes" in done.err
    assert len(await FilesystemSnapshotStore(tmp_path).list("a")) == 2


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (["prune", "STORE", "a", "--keep-last", "-1"], "--keep-last"),
        (["prune", "STORE", "--keep-last", "1"], "--all-sources"),
        (["verify", "STORE", ""], "source"),
        (["show", "STORE", "forage-snapshot:a?url=u", "--hash", "ab"], "--hash"),
    ],
)
async def test_wrong_usage_exits_with_2(tmp_path: Path, args: list[str], flag: str) -> None:
    await keep(tmp_path, "a")
    done = await forage("snapshots", *(str(tmp_path) if arg == "STORE" else arg for arg in args))
    assert (done.code, done.out) == (2, "")
    assert f"forage snapshots {args[0]}: " in done.err
    assert flag in done.err


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="takes from root what lets it read all files")
async def test_a_record_that_cannot_be_read_is_not_called_corrupt(tmp_path: Path) -> None:
    await keep(tmp_path, "a")
    (record,) = tmp_path.glob("*/*.json")
    record.chmod(0)
    held = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    command = [*held, *COMMAND, "snapshots", "verify", str(tmp_path)]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(b"unreadable  read-failed  ")
    assert done.stderr == b"1 unreadable\n"
