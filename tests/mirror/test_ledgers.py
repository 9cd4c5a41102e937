"""The crawler's records: the latest row decides, a torn line costs one line, one writer a root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.mirror.cache import CacheRootError
from forage.mirror.ledgers import Ledgers, har_name, verified_rows
from forage.mirror.lock import RootBusyError, root_lock


def ledgers(root: Path) -> Ledgers:
    made = Ledgers(root)
    made.prepare()
    return made


def test_rows_are_appended_in_the_order_of_their_members(tmp_path: Path) -> None:
    made = ledgers(tmp_path)
    made.append("verified.jsonl", {"key": "b/é\ud800", "ruleVersion": 3})
    made.append("verified.jsonl", {"key": "a/x", "ruleVersion": 3})
    assert (
        tmp_path / ".crawl/verified.jsonl"
    ).read_bytes() == '{"key":"b/é\\ud800","ruleVersion":3}\n{"key":"a/x","ruleVersion":3}\n'.encode()
    assert list(made.verified(3)) == ["b/é\ud800", "a/x"]


def test_a_torn_last_line_is_completed_before_an_append(tmp_path: Path) -> None:
    made = ledgers(tmp_path)
    (tmp_path / ".crawl/verified.jsonl").write_bytes(b'{"key":"a/x","ruleVersion":3}\n{"key":"b/')
    made.append("verified.jsonl", {"key": "c/x", "ruleVersion": 3})
    assert (tmp_path / ".crawl/verified.jsonl").read_bytes().count(b"\n") == 3
    assert list(made.verified(3)) == ["a/x", "c/x"]


def test_a_tombstone_or_another_rule_voids_a_stamp_and_a_new_one_restores_it() -> None:
    lines = ['{"key":"a","ruleVersion":3}', '{"key":"a","verified":false}', '{"key":"b","ruleVersion":2}', "\xff", "", "[]"]
    assert verified_rows(lines, 3) == {}
    assert list(verified_rows([*lines, '{"key":"a","ruleVersion":3.0,"browser":"x"}'], 3)) == ["a"]
    assert verified_rows(['{"key":"a","ruleVersion":true}'], 1) == {}


@given(st.text(st.characters(), max_size=300))
def test_the_name_of_a_record_is_one_safe_component(name: str) -> None:
    made = har_name(name)
    assert "/" not in made
    assert made.isascii()
    assert len(made) <= 205
    assert made.endswith(".json")


def test_findings_are_kept_until_forgotten(tmp_path: Path) -> None:
    made = ledgers(tmp_path)
    assert made.read_findings("a/x") is None
    made.write_findings("a/x", {"reason": "corrupt"})
    assert made.read_findings("a/x") == {"reason": "corrupt"}
    made.forget_findings("a/x")
    made.forget_findings("a/x")
    assert made.read_findings("a/x") is None


def test_a_folder_that_cannot_be_made_is_an_error_without_a_path(tmp_path: Path) -> None:
    (tmp_path / ".crawl").write_bytes(b"")
    with pytest.raises(CacheRootError) as failed:
        Ledgers(tmp_path).prepare()
    assert str(tmp_path) not in str(failed.value)


def test_a_root_has_one_writer_and_it_is_named(tmp_path: Path) -> None:
    ledgers(tmp_path)
    with root_lock(tmp_path, started="2026-01-02T03:04:05.000Z"):
        with pytest.raises(RootBusyError) as busy, root_lock(tmp_path, started="now"):
            pass
        assert "since 2026-01-02T03:04:05.000Z" in busy.value.owner
    with root_lock(tmp_path, started="now"):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    ledgers(tmp_path)
    script = f"""if True:
        import os, pathlib
        from forage.mirror.lock import root_lock
        with root_lock(pathlib.Path({str(tmp_path)!r}), started="then"):
            os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -9
    with root_lock(tmp_path, started="now"):
        pass
