"""Record text, its verification, and names in a store."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage._codec import dump_pretty
from forage.errors import InvalidSnapshotError, SnapshotCorruptError, StoreErrorReason
from forage.snapshots import (
    Snapshot,
    canonical_clone,
    decode_record,
    encode_record,
    record_name,
    released_record_name,
    snapshot_digest,
    snapshot_of_members,
    source_directory,
    verify_record,
)
from forage.snapshots.javascript import js_key_order
from forage.snapshots.model import sha256_hex
from forage.snapshots.records import (
    ENVELOPE_RECORD,
    MAX_RECORD_BYTES,
    RELEASED_RECORD,
    first_slot,
    iso_time_of,
    newest_first,
    parse_index_entry,
    record_slices,
    refuse_ambiguous_time,
)
from tests.snapshots.strategies import FETCHED_AT, anything, binary, page, snapshots, text_page

DIGEST = "b" * 64
NAME = f"2026-09-01T12-34-56.789Z-{DIGEST}.json"
RELEASED_NAME = "2026-09-01T12-34-56.789Z-2cf24dba5fb0.json"


def members(snapshot: Snapshot) -> dict[str, Any]:
    """The record as a general JSON writer would be given it."""
    found: dict[str, Any] = {
        "sourceId": snapshot.source_id,
        "url": snapshot.url,
        "status": snapshot.status,
        "fetchedAt": snapshot.fetched_at,
    }
    if snapshot.raw_bytes is not None:
        found["declaredCharset"] = snapshot.declared_charset
    elif isinstance(snapshot.body, str):
        found["body"] = snapshot.body
    found["bodyHash"] = snapshot.body_hash
    if snapshot.headers is not None:
        found["headers"] = {name: snapshot.headers[name] for name in js_key_order(snapshot.headers)}
    if snapshot.redirects is not None:
        found["redirects"] = list(snapshot.redirects)
    if snapshot.rendered is not None:
        found["rendered"] = snapshot.rendered
    data = snapshot.raw_bytes if snapshot.raw_bytes is not None else snapshot.body
    if isinstance(data, bytes):
        found["bodyBase64"] = base64.b64encode(data).decode()
    return found


def rewritten(snapshot: Snapshot, drop: tuple[str, ...] = (), **changes: Any) -> bytes:
    """A record by another writer, with other members."""
    found = {name: value for name, value in members(snapshot).items() if name not in drop}
    return json.dumps({**found, **changes}).encode()


def reason_of(data: bytes, name: str = NAME) -> StoreErrorReason | None:
    with pytest.raises(SnapshotCorruptError) as caught:
        decode_record(data, name=name)
    return caught.value.reason


# --- writing


@given(snapshots())
def test_a_record_is_the_pretty_json_of_its_members(snapshot: Snapshot) -> None:
    small = canonical_clone(snapshot)
    if abs(small.status) > 2**53:  # a general writer prints other digits
        return
    assert encode_record(small) == dump_pretty(members(small)).encode()


@given(snapshots())
def test_a_record_reads_back_as_the_same_snapshot(snapshot: Snapshot) -> None:
    record, name = encode_record(snapshot), record_name(snapshot)
    assert decode_record(record, name=name) == snapshot
    assert verify_record(record, name=name, source_id=snapshot.source_id) == snapshot
    assert encode_record(decode_record(record, name=name)) == record


@pytest.mark.parametrize("size", [0, 1, 2, 3, 192 * 1024 - 1, 192 * 1024, 192 * 1024 + 1, 600_000])
def test_pieces_of_a_large_body_join_to_the_record_of_the_whole(size: int) -> None:
    for snapshot in (binary(b"\xfe\x00\x01" * (size // 3) + b"x" * (size % 3)), text_page('é😀\n"' * (size // 4) + "x" * (size % 4))):
        pieces = list(record_slices(snapshot))
        assert b"".join(pieces) == dump_pretty(members(snapshot)).encode()
        assert max(map(len, pieces)) <= 6 * 192 * 1024


def test_a_record_above_96_mebibytes_is_refused() -> None:
    grows = text_page("\x01" * (MAX_RECORD_BYTES // 6))  # six bytes each as JSON
    with pytest.raises(InvalidSnapshotError, match="above"):
        encode_record(grows)


def test_a_snapshot_that_is_not_durable_has_no_record() -> None:
    with pytest.raises(InvalidSnapshotError):
        encode_record(page(body_hash="0" * 64))


@pytest.mark.parametrize("time", ["2026-09-01T12-34-56.789Z", "2026/09/01T12:34:56.789Z".replace("/", " "), "2026-09-01T12:34-56Z"])
def test_a_time_whose_name_reads_as_another_time_is_not_written(time: str) -> None:
    with pytest.raises(InvalidSnapshotError, match="fetched_at"):
        encode_record(page(fetched_at=time))
    assert record_name(page(fetched_at=time))  # old records of this kind keep their name


@pytest.mark.parametrize("time", [FETCHED_AT, "2026-09-01T12:34:56Z", "2026-09-01T12:34:56.1234567891Z", "yesterday", "2026-09-01"])
def test_other_times_are_written(time: str) -> None:
    assert decode_record(encode_record(page(fetched_at=time)), name=NAME).fetched_at == time


def test_large_numbers_are_written_as_javascript_prints_them() -> None:
    assert b'"status": 1e+21,' in encode_record(page(status=10**21))
    assert b'"status": 9007199254740992,' in encode_record(page(status=2**53 + 1))


# --- reading


def test_order_of_members_space_and_unknown_members_do_not_matter() -> None:
    snapshot = page(headers={"a": "b"})
    shuffled = dict(reversed(members(snapshot).items()))
    assert decode_record(json.dumps({"x": [1], **shuffled}).encode() + b" \n", name=NAME) == snapshot
    assert decode_record(rewritten(snapshot, notModified=True), name=NAME) == snapshot


def test_the_last_of_two_equal_members_counts() -> None:
    record = encode_record(text_page()).replace(b'"status": 200', b'"status": "x", "status": 2e2')
    assert decode_record(record, name=NAME) == text_page()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}x",
        b"\xef\xbb\xbf" + encode_record(text_page()),
        encode_record(text_page()).replace(b"200", b"NaN"),
        encode_record(text_page()).replace(b'"\n}', b'",\n}'),
        encode_record(text_page()).replace(b"hello", b"hel\nlo"),
        b"[" * 100_000,
        rewritten(binary(b"\x00\x01\x02\x03"), bodyBase64="AAECAw=\n="),
        rewritten(binary(b"\x00\x01\x02\x03"), bodyBase64="AAECAw==\n"),
        rewritten(binary(b"\x00\x01\x02\x03"), bodyBase64="AAECAx=="),  # spare bits
        rewritten(binary(b"\x00\x01\x02\x03"), bodyBase64="AAECAw"),
        rewritten(binary(b"\xfb\xff"), bodyBase64="-_8="),
        rewritten(binary(b"\xfb\xff"), bodyBase64="é"),
        rewritten(page(), declaredCharset=7),
    ],
)
def test_broken_json_and_base64_are_malformed(data: bytes) -> None:
    assert reason_of(data) is StoreErrorReason.MALFORMED_RECORD


def test_bytes_that_are_not_utf8_become_replacement_characters_and_fail_the_hash() -> None:
    assert reason_of(encode_record(text_page("é")).replace("é".encode(), b"\xe9")) is StoreErrorReason.INVALID_RECORD


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        rewritten(text_page(), sourceId=1),
        rewritten(text_page(), url=None),
        rewritten(text_page(), fetchedAt=["t"]),
        rewritten(text_page(), bodyHash=None),
        rewritten(text_page(), status="200"),
        rewritten(text_page(), status=None),
        rewritten(text_page(), status=True),
        rewritten(text_page(), status=200.5),
        encode_record(text_page()).replace(b"200", b"1" * 5_000),
        encode_record(text_page()).replace(b"200", b"1e999"),
        rewritten(text_page(), drop=("body",)),
        rewritten(text_page(), body=None),
        rewritten(text_page(), body="other"),
        rewritten(text_page(), headers=None),
        rewritten(text_page(), headers=[]),
        rewritten(text_page(), headers={"a": None}),
        rewritten(text_page(), redirects=None),
        rewritten(text_page(), redirects="r"),
        rewritten(text_page(), rendered=None),
        rewritten(text_page(), rendered=0),
        rewritten(text_page(), notModified=False),
        rewritten(text_page(), notModified=None),
        rewritten(text_page(), declaredCharset=None),
        rewritten(text_page(), declaredCharset="utf-8"),
        rewritten(text_page(), bytes="hello"),
        rewritten(text_page(), bytes=None),
        rewritten(text_page(), bodyHash=text_page().body_hash.upper()),
        rewritten(page(), bodyHash="0" * 64),
        rewritten(page(), declaredCharset="UTF-8"),
        rewritten(page(), declaredCharset=""),
        rewritten(text_page("x"), body="\ud800"),
    ],
)
def test_json_that_holds_no_durable_snapshot_is_invalid(data: bytes) -> None:
    assert reason_of(data) is StoreErrorReason.INVALID_RECORD


def test_base64_wins_over_a_body_and_is_ignored_when_it_is_no_string() -> None:
    assert decode_record(rewritten(binary(b"\x00\x01"), body="ignored"), name=NAME) == binary(b"\x00\x01")
    assert decode_record(rewritten(page(), body="ignored"), name=NAME) == page()
    assert decode_record(rewritten(text_page(), bodyBase64=7), name=NAME) == text_page()
    assert decode_record(rewritten(text_page(), bodyBase64=None), name=NAME) == text_page()


@given(st.text("AQgw+/=-_ \n\r\té", max_size=12) | st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()))
def test_base64_is_taken_exactly_when_it_is_what_an_encoder_writes(text: str) -> None:
    try:
        data = base64.b64decode(text)
    except ValueError:
        data = None
    record = rewritten(binary(data or b""), bodyBase64=text)
    if data is not None and base64.b64encode(data).decode() == text:
        assert decode_record(record, name=NAME).body == data
    else:
        assert reason_of(record) is StoreErrorReason.MALFORMED_RECORD


@given(
    snapshots(),
    st.lists(
        st.tuples(
            st.integers(0, 3_000),
            st.integers(0, 4),
            st.sampled_from(
                [
                    b"",
                    b'"',
                    b"\\",
                    b",",
                    b"{",
                    b"}",
                    b"[",
                    b"\n",
                    b"=",
                    b"A",
                    b"\xff",
                    b"\\u0041",
                    b',\n  "bodyBase64": "',
                    b'"\n}',
                    b'"x": {"y": 1',
                ]
            ),
        ),
        max_size=4,
    ),
)
def test_cutting_the_base64_off_changes_no_answer(snapshot: Snapshot, edits: list[tuple[int, int, bytes]]) -> None:
    record = bytearray(encode_record(snapshot))
    for place, length, new in edits:
        place %= len(record) + 1
        record[place : place + length] = new

    def outcome(data: bytes) -> object:
        try:
            return decode_record(data, name=NAME)
        except SnapshotCorruptError as exc:
            return exc.reason

    # With white space at its end, the same JSON is read in one piece.
    assert outcome(bytes(record)) == outcome(bytes(record) + b" ")


@pytest.mark.parametrize("size", [192 * 1024, 192 * 1024 + 1, 192 * 1024 + 2, 192 * 1024 + 3, 500_000])
def test_base64_of_large_bodies_is_canonical_as_a_whole(size: int) -> None:
    snapshot = binary(b"\xff" * size)
    record = encode_record(snapshot)
    assert decode_record(record, name=NAME) == snapshot
    start = record.index(b'"bodyBase64": "') + 15
    border = start + 192 * 1024 // 3 * 4  # of the pieces that it is decoded in
    for place in (start + 1, start + 1_000, border - 5, border - 1):
        padded = record[:place] + b"=" + record[place + 1 :]
        if padded[border : border + 1] != b'"':  # padding at the very end may be right
            assert reason_of(padded) is StoreErrorReason.MALFORMED_RECORD


def test_the_limits_of_the_released_generation_hold_under_its_names_only() -> None:
    long = text_page(url="u" * 8_193)
    record = json.dumps(members(long)).encode()
    assert decode_record(record, name=RELEASED_NAME) == long
    assert reason_of(record, NAME) is StoreErrorReason.INVALID_RECORD


def test_a_record_must_be_of_its_source_and_have_the_name_of_its_content() -> None:
    record, name = encode_record(page()), record_name(page())

    def reason(name: str, source_id: str = "src") -> StoreErrorReason | None:
        with pytest.raises(SnapshotCorruptError) as caught:
            verify_record(record, name=name, source_id=source_id)
        return caught.value.reason

    assert reason(name, "other") is StoreErrorReason.FOREIGN_SOURCE_RECORD
    assert reason(NAME) is StoreErrorReason.RECORD_IDENTITY_MISMATCH
    assert reason(f"x{name}") is StoreErrorReason.RECORD_IDENTITY_MISMATCH
    for other in ("any.json", RELEASED_NAME, "wrong-000000000000.json"):
        assert verify_record(record, name=other, source_id="src") == page()


def test_errors_show_no_content() -> None:
    for data in (b"secret", rewritten(text_page(), body="secret")):
        with pytest.raises(SnapshotCorruptError) as caught:
            decode_record(data, name=NAME)
        assert "secret" not in str(caught.value)


def test_members_of_a_type_that_no_snapshot_has_are_refused_by_name() -> None:
    good = {**members(text_page()), "x": 1}
    assert snapshot_of_members(good) == text_page()
    with pytest.raises(InvalidSnapshotError, match="sourceId"):
        snapshot_of_members({**good, "sourceId": 1})


# --- names


@pytest.mark.parametrize(
    ("source_id", "readable"),
    [
        ("src", "src"),
        ("a/b//c d", "a-b-c-d"),
        ("--a.b_c--", "a.b_c"),
        ("😀é", "source"),
        ("", "source"),
        ("...", "..."),
        ("a" * 100, "a" * 80),
        ("a" * 79 + "/b", "a" * 79 + "-"),
    ],
)
def test_source_directories(source_id: str, readable: str) -> None:
    assert source_directory(source_id) == f"{readable}-{sha256_hex(source_id.encode())[:8]}"


def test_a_lone_surrogate_names_a_directory_as_the_replacement_character_does() -> None:
    assert source_directory("a\ud800") == "a-" + sha256_hex(b"a\xef\xbf\xbd")[:8]


@given(st.text(st.characters(exclude_categories=())))
def test_no_source_leaves_the_root_of_a_store(source_id: str) -> None:
    name = source_directory(source_id)
    assert len(name) <= 89
    assert "/" not in name
    assert name not in {".", ".."}
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@given(snapshots())
def test_record_names_have_the_shape_of_the_envelope_generation(snapshot: Snapshot) -> None:
    name = record_name(snapshot)
    assert ENVELOPE_RECORD.fullmatch(name)
    assert not RELEASED_RECORD.fullmatch(name)
    assert name.endswith(f"-{snapshot_digest(snapshot)}.json")
    assert len(name) <= 80 + 70


def test_each_unit_of_a_time_that_no_name_may_hold_is_one_hyphen() -> None:
    assert record_name(page(fetched_at="a:😀é/b")).startswith("a-----b-")
    assert record_name(page(fetched_at="x" * 100)).startswith("x" * 80 + "-")
    assert released_record_name("a:😀b", "ab" * 32) == "a---b-abababababab.json"
    assert released_record_name("x" * 237, "ab" * 32) == "x" * 237 + "-abababababab.json"
    assert released_record_name("x" * 238, "ab" * 32) is None
    assert released_record_name("t", "XYZ") == "t-snapshot.json"


def test_times_of_iso_shaped_names() -> None:
    assert iso_time_of(NAME) == FETCHED_AT
    assert iso_time_of(f"2026-09-01T12-34-56Z-{DIGEST}.json") == "2026-09-01T12:34:56Z"
    for name in (RELEASED_NAME, f"2026-09-01T12-34-56.Z-{DIGEST}.json", f"٢٠٢٦-09-01T12-34-56Z-{DIGEST}.json", f"x{NAME}", NAME + "\n"):
        assert iso_time_of(name) is None
    refuse_ambiguous_time(NAME, FETCHED_AT)
    refuse_ambiguous_time(f"any-{DIGEST}.json", "any")


def test_index_entries_are_trimmed_as_javascript_does() -> None:
    assert parse_index_entry(f"\ufeff\u2028 {NAME}\n") == NAME
    for text in ("", f"\x1c{NAME}", f"{NAME}\x85", RELEASED_NAME, f"../{NAME}", f"{NAME}\n{NAME}"):
        assert parse_index_entry(text) is None


@given(st.text("abc", min_size=1), st.integers(1, 10_000))
def test_slots_lie_below_the_ceiling(name: str, ceiling: int) -> None:
    assert 0 <= first_slot(name, ceiling) < ceiling
    assert first_slot(name, ceiling) == int(sha256_hex(name.encode())[:12], 16) % ceiling


@given(st.lists(st.text(anything, min_size=1, max_size=3), min_size=1, max_size=6))
def test_a_history_is_sorted_by_utf16_units_of_the_time(times: list[str]) -> None:
    history = sorted((page(fetched_at=time) for time in times), key=newest_first, reverse=True)
    keys = [s.fetched_at.encode("utf-16-be") for s in history]
    assert keys == sorted(keys, reverse=True)


def test_equal_times_are_sorted_by_body_hash_then_digest() -> None:
    pages = [page(b"a"), page(b"b"), page(b"b", url="other"), page(b"b", fetched_at="2026-09-01T12:34:56Z"), page(b"c")]
    history = sorted(pages, key=newest_first, reverse=True)
    assert history[0].fetched_at == "2026-09-01T12:34:56Z"  # "Z" sorts above "."
    rest = [(s.body_hash, snapshot_digest(s)) for s in history[1:]]
    assert rest == sorted(rest, reverse=True)
