"""Verdicts on what a store holds, and the command that shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from forage.cli import main
from forage.errors import SnapshotStoreError, StoreErrorReason
from forage.snapshots import FilesystemSnapshotStore, HashBasis, build_source_ref, identity_digest, record_name, source_directory
from forage.snapshots.records import encode_record, released_record_name
from forage.snapshots.verify import Verdict, recorded_ceiling, source_directories, verify_source
from forage.testing import sample_snapshot

SOURCE = source_directory("source")


def fill(root: Path, **options: Any) -> None:
    async def put() -> None:
        store = FilesystemSnapshotStore(root, **options)
        for number in range(3):
            await store.put(sample_snapshot(number))
        await store.put(sample_snapshot(0, source_id="binary", body=b"\xff\x00"))

    trio.run(put)


def verdicts(root: Path, directory: str = SOURCE) -> list[tuple[Verdict, StoreErrorReason | None]]:
    return [(v.verdict, v.reason) for v in trio.run(verify_source, root, directory)]


def test_every_record_of_a_sound_store_is_intact(tmp_path: Path) -> None:
    fill(tmp_path)
    directories = trio.run(source_directories, tmp_path)
    assert directories == tuple(sorted((SOURCE, source_directory("binary"))))
    assert verdicts(tmp_path) == [(Verdict.INTACT, None)] * 3
    (binary,) = trio.run(verify_source, tmp_path, source_directory("binary"))
    assert (binary.source_id, binary.body_bytes, binary.hash_basis) == ("binary", 2, HashBasis.BYTES)
    assert binary.size == (tmp_path / binary.directory / binary.name).stat().st_size


def test_each_kind_of_damage_has_its_verdict(tmp_path: Path) -> None:
    fill(tmp_path)
    folder = tmp_path / SOURCE
    first, second, third = (folder / record_name(sample_snapshot(n)) for n in range(3))
    (folder / "identity-index" / f"{identity_digest(sample_snapshot(0))}.txt").unlink()
    second.write_text("{}")
    third.unlink()
    third.symlink_to(first)
    released = sample_snapshot(5)
    (folder / str(released_record_name(released.fetched_at, released.body_hash))).write_bytes(encode_record(released))
    foreign = sample_snapshot(6, source_id="other")
    (folder / record_name(foreign)).write_bytes(encode_record(foreign))
    (folder / ("2026-09-01T00-07-00.000Z-" + "0" * 64 + ".json")).write_bytes(first.read_bytes())
    (folder / "strange.json").write_bytes(first.read_bytes())
    assert verdicts(tmp_path) == [
        (Verdict.UNINDEXED, None),
        (Verdict.CORRUPT, StoreErrorReason.INVALID_RECORD),
        (Verdict.CORRUPT, StoreErrorReason.NON_REGULAR_ENTRY),
        (Verdict.LEGACY, None),
        (Verdict.CORRUPT, StoreErrorReason.FOREIGN_SOURCE_RECORD),
        (Verdict.CORRUPT, StoreErrorReason.RECORD_IDENTITY_MISMATCH),
        (Verdict.UNINDEXED, None),
    ]


def test_a_record_without_slot_is_unindexed_until_a_prune(tmp_path: Path) -> None:
    fill(tmp_path, max_history_files=4)
    for path in (tmp_path / SOURCE / "capacity-index").iterdir():
        if path.name != "max-history-files.txt":
            path.unlink()
    assert {verdict for verdict, _ in verdicts(tmp_path)} == {Verdict.UNINDEXED}
    trio.run(lambda: FilesystemSnapshotStore(tmp_path, max_history_files=4).prune("source", keep_last=9))
    assert {verdict for verdict, _ in verdicts(tmp_path)} == {Verdict.INTACT}


def test_a_link_for_a_source_has_one_verdict(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / SOURCE).rename(tmp_path / "real")
    (tmp_path / SOURCE).symlink_to("real")
    assert verdicts(tmp_path) == [(Verdict.CORRUPT, StoreErrorReason.NON_REGULAR_ENTRY)]
    assert verdicts(tmp_path, "absent") == []
    assert trio.run(source_directories, tmp_path / "absent") == ()


def test_a_store_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotStoreError):
        trio.run(source_directories, tmp_path / "file")


@pytest.mark.parametrize(("text", "ceiling"), [("4", 4), (" 4\n", 4), ("0", 10_000), ("x", 10_000), ("10001", 10_000), ("9" * 30, 10_000)])
def test_the_ceiling_on_record_is_read(tmp_path: Path, text: str, ceiling: int) -> None:
    assert trio.run(recorded_ceiling, tmp_path, "source") == 10_000
    fill(tmp_path, max_history_files=4)
    (tmp_path / SOURCE / "capacity-index" / "max-history-files.txt").write_text(text)
    assert trio.run(recorded_ceiling, tmp_path, "source") == ceiling


# --- the command


Command = Callable[..., tuple[int, bytes]]


@pytest.fixture
def command(capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Runs ``forage snapshots`` and gives its exit code and standard output."""

    def run(*arguments: object) -> tuple[int, bytes]:
        capsysbinary.readouterr()
        code = main(["snapshots", *map(str, arguments)])
        return code, capsysbinary.readouterr().out

    return run


def rows(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_list_shows_sources_and_histories(tmp_path: Path, command: Command) -> None:
    fill(tmp_path)
    code, text = command("list", tmp_path, "--json")
    assert code == 0
    assert {row["sourceId"]: (row["records"], row["hashBasis"]) for row in rows(text)} == {
        "source": (3, "decoded-utf8"),
        "binary": (1, "bytes"),
    }
    code, text = command("list", tmp_path, "source", "--json")
    assert [row["fetchedAt"] for row in rows(text)] == [sample_snapshot(n).fetched_at for n in (2, 1, 0)]
    assert command("list", tmp_path, "nothing")[0] == 1
    code, text = command("list", tmp_path)
    assert b"decoded-utf8" in text


def test_show_gives_facts_or_bytes(tmp_path: Path, command: Command) -> None:
    fill(tmp_path)
    reference = build_source_ref(sample_snapshot(1))
    code, text = command("show", tmp_path, reference, "--json")
    assert (code, rows(text)[0]["integrity"]) == (0, "snapshot-envelope")
    assert command("show", tmp_path, reference, "--body") == (0, b"body 1")
    assert command("show", tmp_path, "source", "--body") == (0, b"body 2")
    prefix = sample_snapshot(0).body_hash[:10]
    assert command("show", tmp_path, "source", "--hash", prefix, "--body") == (0, b"body 0")
    assert command("show", tmp_path, "nothing")[0] == 1
    assert command("show", tmp_path, build_source_ref(sample_snapshot(9)))[0] == 1


def test_verify_exits_with_one_unless_all_is_intact(tmp_path: Path, command: Command) -> None:
    fill(tmp_path)
    code, text = command("verify", tmp_path)
    assert (code, text.count(b"intact")) == (0, 4)
    (tmp_path / SOURCE / record_name(sample_snapshot(1))).write_text("{")
    code, text = command("verify", tmp_path, "--json")
    assert code == 1
    assert [row["reason"] for row in rows(text) if row["verdict"] == "corrupt"] == ["malformed-record"]
    assert command("verify", tmp_path, "binary")[0] == 0


def test_prune_takes_the_ceiling_that_is_on_record(tmp_path: Path, command: Command) -> None:
    fill(tmp_path, max_history_files=4)
    keep = build_source_ref(sample_snapshot(0))
    code, text = command("prune", tmp_path, "source", "--keep-last", 1, "--keep", keep, "--json")
    assert (code, rows(text)) == (0, [{"removed": 1, "retained": 2, "sourceId": "source"}])
    assert verdicts(tmp_path) == [(Verdict.INTACT, None)] * 2


def test_prune_of_all_sources_goes_on_after_a_damaged_one(tmp_path: Path, command: Command) -> None:
    fill(tmp_path)
    (tmp_path / SOURCE / record_name(sample_snapshot(1))).write_text("{")
    (tmp_path / source_directory("unreadable")).mkdir()
    (tmp_path / source_directory("unreadable") / "x.json").write_text("{")
    code, text = command("prune", tmp_path, "--all-sources", "--keep-last", 1, "--json")
    assert code == 1
    assert [row["sourceId"] for row in rows(text)] == ["binary"]


@pytest.mark.parametrize("arguments", [(), ("source", "--all-sources"), ("source", "--keep", "forage-snapshot:x")])
def test_prune_says_what_it_takes(tmp_path: Path, command: Command, arguments: tuple[str, ...]) -> None:
    fill(tmp_path)
    assert command("prune", tmp_path, *arguments, "--keep-last", 1)[0] == 2
