"""The durable shape of a snapshot, and how one is built."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given

from forage.errors import InvalidSnapshotError
from forage.snapshots import (
    HashBasis,
    Snapshot,
    body_bytes,
    build_snapshot,
    canonical_clone,
    rendered_snapshot,
    snapshot_digest,
    snapshot_hash_basis,
    validate_snapshot,
)
from forage.snapshots.model import MAX_BODY_BYTES, body_slices, sha256_hex
from tests.snapshots.strategies import FETCHED_AT, binary, change, page, snapshots, text_page


@given(snapshots())
def test_durable_snapshots_pass_with_either_limits(snapshot: Snapshot) -> None:
    validate_snapshot(snapshot)
    validate_snapshot(snapshot, released_identity=True)
    assert sha256_hex(body_bytes(snapshot)) == snapshot.body_hash


@pytest.mark.parametrize(("field", "limit"), [("source_id", 1024), ("url", 8192), ("fetched_at", 256)])
def test_limits_count_utf16_units(field: str, limit: int) -> None:
    for text in ("x" * limit, "😀" * (limit // 2)):
        validate_snapshot(text_page(**{field: text}))
    for text in ("", "x" * (limit + 1), "😀" * (limit // 2) + "x"):
        with pytest.raises(InvalidSnapshotError, match=field):
            validate_snapshot(text_page(**{field: text}))


@pytest.mark.parametrize("field", ["source_id", "url", "fetched_at"])
def test_released_identities_may_be_a_mebibyte_of_units(field: str) -> None:
    long = text_page(**{field: "x" * 1_048_576})
    validate_snapshot(long, released_identity=True)
    with pytest.raises(InvalidSnapshotError):
        validate_snapshot(long)  # proved for the released limits only
    with pytest.raises(InvalidSnapshotError):
        validate_snapshot(text_page(**{field: "x" * 1_048_577}), released_identity=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"source_id": 1},
        {"url": b"u"},
        {"status": 200.5},
        {"status": True},
        {"status": "200"},
        {"status": float("inf")},
        {"body": None},
        {"body": bytearray(b"hello")},
        {"body_hash": "2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824"},
        {"body_hash": "abc"},
        {"body_hash": sha256_hex(b"other")},
        {"declared_charset": "utf-8"},
        {"raw_bytes": b"hello", "declared_charset": "UTF-8"},
        {"raw_bytes": b"hello", "declared_charset": ""},
        {"raw_bytes": b"hello", "declared_charset": "x" * 65},
        {"raw_bytes": b"hello", "declared_charset": "utf 8"},
        {"raw_bytes": b"hello", "declared_charset": "utf-8\n"},
        {"raw_bytes": b"hello", "declared_charset": 8},
        {"raw_bytes": "hello"},
        {"raw_bytes": b"hello", "body": b"hello"},
        {"raw_bytes": b"hello", "body": "hello!"},
        {"raw_bytes": b"hello", "body": "hell"},
        {"headers": [("a", "b")]},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"headers": {"a": "\ud83d"}},
        {"headers": {"\udfff": "a"}},
        {"redirects": "https://example.test/"},
        {"redirects": ("a", 1)},
        {"redirects": ("\ud800",)},
        {"rendered": "yes"},
        {"rendered": 1},
        {"not_modified": 1},
        {"source_id": "a\ud800"},
        {"url": "\udc00"},
        {"fetched_at": "\ud800"},
        {"body": "\ud800", "body_hash": sha256_hex(b"\xef\xbf\xbd")},
    ],
)
def test_what_is_not_durable_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSnapshotError):
        validate_snapshot(text_page(**changes))


def test_bodies_end_at_64_mebibytes() -> None:
    largest = b"\xff" * MAX_BODY_BYTES
    validate_snapshot(binary(largest))
    for refused in (binary(largest + b"x"), text_page("é" * (MAX_BODY_BYTES // 2) + "x")):
        with pytest.raises(InvalidSnapshotError, match="above"):
            validate_snapshot(refused)


def test_a_text_that_grows_above_the_limit_while_it_is_decoded_is_refused() -> None:
    data = b"\xff" * (MAX_BODY_BYTES // 3 + 1)  # three bytes of UTF-8 each
    with pytest.raises(InvalidSnapshotError, match="above"):
        build_snapshot(source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=data, content_type="text/plain")
    with pytest.raises(InvalidSnapshotError, match="above"):
        validate_snapshot(binary(data, body="\ufffd" * len(data), raw_bytes=data))
    fits, _ = build_snapshot(source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=data[:-1], content_type="text/plain")
    validate_snapshot(change(fits))


def test_a_body_above_the_limit_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(InvalidSnapshotError, match="above"):
        build_snapshot(
            source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=b"x" * (MAX_BODY_BYTES + 1), content_type="text/plain"
        )


def test_hash_basis_says_what_was_hashed() -> None:
    assert snapshot_hash_basis(text_page()) is HashBasis.DECODED_UTF8
    assert snapshot_hash_basis(page()) is HashBasis.BYTES
    assert snapshot_hash_basis(binary(b"\x00")) is HashBasis.BYTES


def test_a_large_text_is_hashed_in_pieces_of_bounded_size() -> None:
    text = "é😀a" * 300_000
    pieces = list(body_slices(text_page(text)))
    assert b"".join(pieces) == text.encode()
    assert max(map(len, pieces)) <= 4 * 256 * 1024
    assert len(pieces) > 1


def test_the_text_is_decoded_by_the_header_alone() -> None:
    body = '<meta charset="utf-8">café'.encode("windows-1252")
    snapshot, warnings = build_snapshot(
        source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=body, content_type="text/html; charset=ISO-8859-1"
    )
    assert (snapshot.body, snapshot.declared_charset, snapshot.raw_bytes) == ('<meta charset="utf-8">café', "iso-8859-1", body)
    assert warnings == ()
    undeclared, warnings = build_snapshot(source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=body, content_type="text/html")
    assert undeclared.body == '<meta charset="utf-8">caf\ufffd'
    assert undeclared.declared_charset is None
    assert len(warnings) == 1
    assert undeclared.body_hash == snapshot.body_hash
    assert snapshot_digest(undeclared) != snapshot_digest(snapshot)


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/json", "image/svg+xml", "APPLICATION/JAVASCRIPT; x=y"])
def test_textual_content_is_kept_with_its_bytes(content_type: str | None) -> None:
    snapshot, _ = build_snapshot(source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=b"x", content_type=content_type)
    assert (snapshot.body, snapshot.raw_bytes) == ("x", b"x")
    _prove_again(snapshot)


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "application/pdf; charset=utf-8", " text/html"])
def test_other_content_is_bytes(content_type: str) -> None:
    snapshot, warnings = build_snapshot(source_id="s", url="u", status=200, fetched_at=FETCHED_AT, body=b"x", content_type=content_type)
    assert (snapshot.body, snapshot.raw_bytes, snapshot.declared_charset, warnings) == (b"x", None, None, ())
    _prove_again(snapshot)


def _prove_again(snapshot: Snapshot) -> None:
    """What build_snapshot vouches for without looking must hold when it is looked at."""
    validate_snapshot(change(snapshot))


def test_building_refuses_what_no_store_could_keep() -> None:
    for changes in ({"url": "u" * 8193}, {"source_id": ""}, {"fetched_at": ""}, {"headers": {"a": "\ud800"}}):
        fields: dict[str, Any] = {"source_id": "s", "url": "u", "status": 200, "fetched_at": FETCHED_AT, "body": b"", "content_type": None}
        with pytest.raises(InvalidSnapshotError):
            build_snapshot(**{**fields, **changes})


def test_rendering_replaces_the_body_and_nothing_else() -> None:
    plain = page(headers={"a": "b"}, redirects=("r",))
    rendered = rendered_snapshot(plain, "<p>é</p>")
    assert rendered == change(
        plain, body="<p>é</p>", body_hash=sha256_hex("<p>é</p>".encode()), raw_bytes=None, declared_charset=None, rendered=True
    )
    assert snapshot_hash_basis(rendered) is HashBasis.DECODED_UTF8
    with pytest.raises(InvalidSnapshotError):
        rendered_snapshot(plain, "\ud800")


def test_stores_keep_a_snapshot_without_the_transient_mark() -> None:
    answered = page(not_modified=True)
    kept = canonical_clone(answered)
    assert kept == page()
    assert answered.not_modified
    with pytest.raises(InvalidSnapshotError):
        canonical_clone(page(body_hash="0" * 64))


def test_a_snapshot_cannot_be_changed_through_what_it_was_made_of() -> None:
    headers, redirects = {"a": "b"}, ["r"]
    snapshot = page(headers=headers, redirects=redirects)
    headers["c"] = "d"
    redirects.append("s")
    assert snapshot.headers == {"a": "b"}
    assert snapshot.redirects == ("r",)
    with pytest.raises(TypeError):
        snapshot.headers["a"] = "x"  # type: ignore[index]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        snapshot.url = "other"  # type: ignore[misc]


def test_what_was_proved_of_one_snapshot_is_not_believed_of_a_changed_one() -> None:
    snapshot = page()
    validate_snapshot(snapshot)
    snapshot_digest(snapshot)
    with pytest.raises(InvalidSnapshotError):
        validate_snapshot(attrs.evolve(snapshot, body="other"))
    assert snapshot_digest(attrs.evolve(snapshot, url="other")) != snapshot_digest(snapshot)


@given(snapshots())
def test_snapshots_are_values(snapshot: Snapshot) -> None:
    for twin in (pickle.loads(pickle.dumps(snapshot)), copy.deepcopy(snapshot), change(snapshot)):
        assert twin == snapshot
        assert hash(twin) == hash(snapshot)


def test_a_snapshot_shows_the_size_of_its_body_and_not_the_body() -> None:
    assert "secret" not in repr(page(b"secret"))


def test_an_integral_float_status_is_the_integer() -> None:
    snapshot = page(status=200.0)
    assert snapshot.status == 200
    assert type(snapshot.status) is int
