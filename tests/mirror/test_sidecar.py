"""Sidecars: canonical text, recorded children and their merging, and files that are never half there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage._codec import JsonError, load_json
from forage.errors import CaptureError
from forage.mirror.cache import CacheRoot, CacheRootError, Entry, content_hash
from forage.mirror.canonical import canonical_json
from forage.mirror.keys import body_path, key_hash, sidecar_path
from forage.mirror.sidecar import (
    DynamicEntry,
    DynamicEntryError,
    Sidecar,
    SidecarError,
    dynamic_entry_error,
    merge_dynamic,
    parse_sidecar,
)

KEY = "20140403040000/http://example.com/"
NOW = "2026-01-02T03:04:05.000Z"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()) | st.sampled_from(["0", "10", "9", "01"]), inner, max_size=4)
    ),
    max_leaves=20,
)
KEYS = st.sampled_from(["1", "2", "é", "🚀", "\ufb00"]).map(lambda name: f"2014/http://x.org/{name}")
ENTRIES = st.builds(
    lambda key, flag, seen: {"key": key, "flag": flag, "via": "remaster-verify"} | ({"firstSeen": seen} if seen else {}),
    KEYS,
    st.sampled_from(["im_", "cs_", "js_", "oe_", None]),
    st.sampled_from([None, NOW, "2026-01-02T03:04:05Z"]),
)


def entry(status: str = "body", **members: Any) -> Entry:
    return Entry(**{"key": KEY, "status": status, "content_type": "text/html", "fetched_at": NOW} | members)


@given(JSON)
def test_canonical_text_is_a_fixed_point_and_reads_back_as_the_same_value(value: Any) -> None:
    text = canonical_json(value)
    text.encode()  # no lone surrogate is ever written raw
    assert canonical_json(load_json(text)) == text
    assert "\n" not in text.replace("\\n", "")


@given(st.dictionaries(st.text(st.characters()), st.none(), max_size=6))
def test_members_are_sorted_by_utf_16_units_with_indices_first(value: dict[str, None]) -> None:
    names = list(json.loads(canonical_json(value)))
    indices = [name for name in names if name.isdecimal() and name.isascii() and str(int(name)) == name and int(name) < 2**32 - 1]
    assert names[: len(indices)] == sorted(indices, key=int)
    rest = [name.encode("utf-16-be", "surrogatepass") for name in names[len(indices) :]]
    assert rest == sorted(rest)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (-1.5e-5, "-0.000015"),
        (1e-7, "1e-7"),
        (-1.25e-9, "-1.25e-9"),
        (0.5, "0.5"),
        (-0.0, "0"),
        (2**53 + 1, "9007199254740992"),
        (10**400, "null"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_are_written_as_javascript_does(number: float, text: str) -> None:
    assert canonical_json(number) == text


def test_what_is_nested_too_deep_is_an_error_of_ours() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(JsonError):
        canonical_json(value)


@given(JSON | ENTRIES)
def test_judging_an_entry_never_raises(value: Any) -> None:
    reason = dynamic_entry_error(value)
    assert reason is None or reason


@pytest.mark.parametrize(
    "moment",
    ["2026-01-02T24:00:00Z", "2026-01-02T24:00:00.000+23:59", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-02T03:04:05-00:00"],
)
def test_moments_that_are_taken(moment: str) -> None:
    assert dynamic_entry_error({"key": "1/x", "via": "manual", "firstSeen": moment}) is None


@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-02T24:00:01Z",
        "2026-01-00T00:00:00Z",
        "2026-01-02T03:60:00Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04Z",
        None,
        "٢026-01-02T03:04:05Z",
    ],
)
def test_moments_that_are_refused(moment: object) -> None:
    assert dynamic_entry_error({"key": "1/x", "via": "manual", "firstSeen": moment})


def stored(rows: Sequence[Mapping[str, Any]]) -> Sidecar:
    return Sidecar(members={"key": KEY, "v": 2, "status": "body", "other": {"b": 1, "a": 2}, "dynamic": rows})


def unique(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["key"]: row for row in rows}.values())


@given(st.lists(ENTRIES, max_size=5).map(unique), st.lists(ENTRIES, max_size=5).map(unique))
def test_recording_keeps_what_is_known_and_is_idempotent(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    merged = merge_dynamic(stored(old), new)
    assert merge_dynamic(merged, new).text() == merged.text()
    by_key = {row["key"]: row for row in merged.dynamic_rows}
    assert set(by_key) == {row["key"] for row in old} | {row["key"] for row in new}
    assert all(by_key[row["key"]] == {"flag": None} | row for row in old)
    assert merged.members["v"] == 3
    assert merged.members["other"] == {"b": 1, "a": 2}
    order = [row["key"].encode("utf-16-be") for row in merged.dynamic_rows]
    assert order == sorted(order)


@pytest.mark.parametrize("rows", ["nope", {}, 5, None, [{"key": "x"}]])
def test_rotten_recorded_children_are_an_error_and_never_repaired(rows: Any) -> None:
    with pytest.raises(DynamicEntryError):
        merge_dynamic(Sidecar(members={"key": KEY, "dynamic": rows}), [])


@pytest.mark.parametrize("text", ["null", "[]", '"x"', "5", '{"v":true,"key":"x"}', '{"v":"3"}', '{"v":3.5}'])
def test_what_is_no_sidecar_object_has_no_version(text: str) -> None:
    with pytest.raises(SidecarError) as failed:
        parse_sidecar(text, KEY)
    assert failed.value.fault == "version"


@given(JSON)
def test_a_rotten_member_never_breaks_reading(value: Any) -> None:
    sidecar = Sidecar(members=dict.fromkeys(["key", "status", "contentType", "flag", "requisites", "dynamic", "contentHash"], value))
    assert isinstance(sidecar.status, str)
    assert isinstance(sidecar.requisites, tuple)
    assert isinstance(sidecar.dynamic, tuple)
    assert sidecar.flag is None or isinstance(sidecar.flag, str)


def test_a_commit_is_read_back(tmp_path: Path) -> None:
    root = CacheRoot(tmp_path)
    committed = root.commit(entry(requisites=("2014/http://x.org/a",), final_key="2015/http://example.com/"), b"<p>hello")
    found = root.read_sidecar(KEY)
    assert found == committed
    assert found.requisites == ("2014/http://x.org/a",)
    assert found.content_hash == content_hash(b"<p>hello")
    assert found.members["finalKey"] == "2015/http://example.com/"
    assert root.read_body(KEY) == b"<p>hello"
    assert root.load_corpus() == {KEY}
    assert root.document_keys() == [KEY]
    assert not list((tmp_path / "tmp").iterdir())


def test_absence_is_no_error_and_rot_is(tmp_path: Path) -> None:
    root = CacheRoot(tmp_path)
    assert root.read_sidecar(KEY) is None
    assert root.read_body(KEY) is None
    assert root.load_corpus() == set()
    path = tmp_path / sidecar_path(key_hash(KEY))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    with pytest.raises(SidecarError):
        root.read_sidecar(KEY)
    path.unlink()
    path.mkdir()
    with pytest.raises(SidecarError) as failed:
        root.read_sidecar(KEY)
    assert failed.value.fault == "read"
    assert root.load_corpus() == set()


def test_a_bodiless_commit_leaves_the_old_body_an_orphan(tmp_path: Path) -> None:
    root = CacheRoot(tmp_path)
    root.commit(entry(), b"x")
    root.commit(entry("error"))
    assert (tmp_path / body_path(key_hash(KEY))).exists()
    assert root.read_sidecar(KEY) == root.commit(entry("error"))


def test_recording_needs_a_sidecar(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        CacheRoot(tmp_path).record_dynamic(KEY, [DynamicEntry(key="2014/http://x.org/")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content_type", ["text/html\r\nX: y", "a\nb", "x" * 983, "é" * 492])
def test_a_content_type_that_must_not_be_stored_writes_nothing(tmp_path: Path, content_type: str) -> None:
    with pytest.raises(CaptureError):
        CacheRoot(tmp_path).commit(entry(content_type=content_type), b"x")
    assert not list(tmp_path.iterdir())


def test_a_sidecar_that_no_reader_would_take_is_not_written(tmp_path: Path) -> None:
    many = tuple(f"2014/http://x.org/{number:0200d}" for number in range(80_000))
    with pytest.raises(CaptureError, match="too many captures"):
        CacheRoot(tmp_path).commit(entry(requisites=many), b"x")
    assert not list(tmp_path.iterdir())


def test_a_body_commit_without_bytes_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        CacheRoot(tmp_path).commit(entry())


def test_a_root_that_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "root"
    blocked.mkdir()
    (blocked / "cap").write_bytes(b"a file where a directory must be")
    with pytest.raises(CacheRootError) as failed:
        CacheRoot(blocked).commit(entry(), b"x")
    assert os.strerror(errno.EEXIST) in str(failed.value) or os.strerror(errno.ENOTDIR) in str(failed.value)
    assert str(tmp_path) not in str(failed.value)
    assert [path.name for path in blocked.rglob("*") if path.is_file()] == ["cap"]
