"""References of both generations, the envelope and identities."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forage.errors import InvalidSnapshotError
from forage.snapshots import (
    Lookup,
    Snapshot,
    SourceRef,
    build_source_ref,
    envelope_json,
    format_source_ref,
    identity_digest,
    lookup_of,
    parse_source_ref,
    snapshot_digest,
    validate_lookup,
)
from forage.snapshots.model import sha256_hex
from tests.snapshots.strategies import binary, page, snapshots, some_text, text_page, texts

HASH = "0123456789abcdef" * 4
REF = f"forage-snapshot:s?url=u&sha256={HASH}&fetchedAt=t&snapshotSha256={HASH}"
RELEASED = f"forage-snapshot:s?url=u&sha256={HASH}&fetchedAt=t"


def parsed(text: object) -> SourceRef:
    ref = parse_source_ref(text)
    assert ref is not None
    return ref


@given(snapshots())
def test_a_built_reference_is_canonical_and_gives_the_fields_back(snapshot: Snapshot) -> None:
    ref = parsed(build_source_ref(snapshot))
    assert ref.canonical
    assert ref.lookup == lookup_of(snapshot)
    assert ref.snapshot_digest == snapshot_digest(snapshot)
    assert format_source_ref(ref) == build_source_ref(snapshot)


@given(some_text, some_text, some_text, st.booleans())
def test_both_generations_round_trip_over_all_of_unicode(source_id: str, url: str, fetched_at: str, exact: bool) -> None:
    lookup = Lookup(source_id=source_id, url=url, body_hash=HASH, fetched_at=fetched_at, snapshot_digest=HASH if exact else None)
    text = format_source_ref(lookup)
    assert text.isascii()
    ref = parsed(text)
    assert ref.canonical
    assert ref.lookup == lookup


@given(some_text)
def test_components_and_values_are_escaped_as_by_encode_uri_component_and_forms(text: str) -> None:
    ref = format_source_ref(Lookup(source_id=text, url=text, body_hash=HASH, fetched_at="t"))
    source, _, query = ref.removeprefix("forage-snapshot:").partition("?")
    assert source == quote(text, safe="-_.!~*'()")
    assert query.split("&", 1)[0] == "url=" + quote_plus(text, safe="*").replace("~", "%7E")


@given(texts | st.binary(max_size=30).map(quote), texts)
def test_parsing_never_fails_and_what_it_calls_canonical_formats_to_the_same_text(source: str, query: str) -> None:
    for text in (f"forage-snapshot:{source}?{query}", f"forage-snapshot:{source}?url={query}&sha256={HASH}&fetchedAt={query}", source):
        ref = parse_source_ref(text)
        if ref is not None and ref.canonical:
            assert format_source_ref(ref) == text


@given(st.lists(st.tuples(st.sampled_from(["url", "sha256", "fetchedAt", "x"]), texts.filter(str.isascii)), max_size=8))
def test_values_decode_as_forms_do_and_the_first_of_a_name_counts(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{name}={value}" for name, value in pairs)
    # One leading question mark is dropped; the standard library decodes the rest alike.
    expected: dict[str, str] = {}
    for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True, separator="&", errors="replace", max_num_fields=None):
        expected.setdefault(name, value)
    ref = parse_source_ref(f"forage-snapshot:s?{query}")
    if ref is None:
        assert not all(expected.get(name) for name in ("url", "sha256", "fetchedAt"))
    else:
        assert (ref.url, ref.body_hash, ref.fetched_at) == (expected["url"], expected["sha256"], expected["fetchedAt"])


@pytest.mark.parametrize(
    "text", [None, 7, b"forage-snapshot:s", ["forage-snapshot:s"], "", "forage-snapshot:", "forage-snapshot:s", " " + REF]
)
def test_what_is_no_reference_is_none(text: object) -> None:
    assert parse_source_ref(text) is None


@pytest.mark.parametrize(
    "text",
    [
        REF.replace("forage-snapshot:", "Forage-Snapshot:"),
        REF.replace(":s?", ":?"),
        REF.replace(":s?", ":%zz?"),
        REF.replace(":s?", ":%?"),
        REF.replace(":s?", ":%C0%AF?"),  # overlong
        REF.replace(":s?", ":%ED%A0%80?"),  # a surrogate
        REF.replace(":s?", ":%E2%82?"),  # cut short
        REF.replace(":s?", ":\ud800?"),
        REF.replace("url=u", "url="),
        REF.replace("url=u", "url=&url=v"),
        REF.replace("fetchedAt=t", "fetchedat=t"),
    ],
)
def test_a_broken_source_or_a_missing_field_is_no_reference(text: str) -> None:
    assert parse_source_ref(text) is None


@pytest.mark.parametrize(
    "text",
    [
        REF.replace(":s?", ":%73?"),  # a needless escape
        REF.replace(":s?", ":a%2fb?"),  # lower-case digits
        REF.replace(":s?", ":a b?"),
        REF.replace(":s?", ":é?"),
        REF.replace(":s?", ":s??"),
        REF.replace("url=u", "url=u%20"),
        REF.replace("url=u", "url=~"),
        REF.replace("url=u", "url=%zz"),
        REF.replace("url=u", "u%72l=u"),
        REF.replace("url=u", "x=1&url=u"),
        REF.replace("url=u", "url=u&url=v"),
        REF.replace("url=u&", "url=u&&"),
        REF + "&",
        REF + "#f",
        REF.replace(f"sha256={HASH}", f"sha256={HASH.upper()}", 1),
        REF.replace(f"sha256={HASH}", f"sha256={HASH[:12]}", 1),
        RELEASED + "&snapshotSha256=",
        f"forage-snapshot:s?sha256={HASH}&url=u&fetchedAt=t&snapshotSha256={HASH}",
    ],
)
def test_other_spellings_parse_but_are_not_canonical(text: str) -> None:
    assert not parsed(text).canonical


def test_a_plus_is_literal_in_the_source_and_a_space_in_a_value() -> None:
    ref = parsed(REF.replace(":s?", ":a+b?").replace("url=u", "url=a+b"))
    assert (ref.source_id, ref.url) == ("a+b", "a b")


def test_a_byte_order_mark_in_a_value_is_kept() -> None:
    assert parsed(REF.replace("url=u", "url=%EF%BB%BFu")).url == "\ufeffu"


def test_limits_of_a_reference_with_digest() -> None:
    def ref(source: str = "s", url: str = "u", time: str = "t") -> SourceRef | None:
        return parse_source_ref(f"forage-snapshot:{source}?url={url}&sha256={HASH}&fetchedAt={time}&snapshotSha256={HASH}")

    assert ref(source="s" * 1024) is not None
    assert ref(source="s" * 1025) is None
    assert ref(source="%F0%9F%98%80" * 512) is not None
    assert ref(source="%F0%9F%98%80" * 512 + "s") is None
    assert ref(url="u" * 8192) is not None
    assert ref(url="u" * 8193) is None
    assert ref(time="t" * 256) is not None
    assert ref(time="t" * 257) is None
    room = 16_384 - len(REF)
    assert ref(url="%C3%A9" * (room // 6) + "u" * (room % 6 + 1)) is not None
    assert ref(url="%C3%A9" * (room // 6) + "u" * (room % 6 + 2)) is None


def test_a_released_reference_is_bounded_by_its_whole_length_only() -> None:
    room = 1_048_576 - len(RELEASED)
    longest = RELEASED.replace("url=u", "url=u" + "u" * room)
    assert parsed(longest).canonical
    assert parse_source_ref(longest.replace("url=u", "url=uu")) is None
    assert parse_source_ref("forage-snapshot:" + "😀" * 524_288 + "?") is None


def test_a_reference_that_would_be_too_long_is_not_built() -> None:
    fits = text_page(url="é" * 2_600)
    assert len(build_source_ref(fits)) <= 16_384
    with pytest.raises(InvalidSnapshotError, match="16384"):
        build_source_ref(text_page(url="é" * 2_800))


def test_a_snapshot_that_is_not_durable_is_not_cited() -> None:
    broken = text_page(body_hash="0" * 64)
    for cite in (build_source_ref, snapshot_digest, envelope_json):
        with pytest.raises(InvalidSnapshotError):
            cite(broken)


@given(snapshots())
def test_the_digest_is_that_of_the_envelope_and_the_envelope_is_compact_json(snapshot: Snapshot) -> None:
    text = envelope_json(snapshot)
    assert snapshot_digest(snapshot) == sha256_hex(text.encode())
    assume(abs(snapshot.status) <= 2**53)
    assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) == text


def test_envelope_members_by_form_of_body() -> None:
    assert '"bodyEncoding":"utf8","headers":null,"redirects":null,"rendered":null}' in envelope_json(text_page())
    assert '"bodyEncoding":"bytes","headers":null' in envelope_json(binary(b"\x00"))
    assert '"bodyEncoding":"charset-decoded-bytes","declaredCharset":null,"headers":null' in envelope_json(page())
    assert '"declaredCharset":"utf8","headers":[],"redirects":[],"rendered":false}' in envelope_json(
        page(declared_charset="utf8", headers={}, redirects=(), rendered=False)
    )


def test_envelope_headers_are_sorted_by_utf16_units_and_the_mark_is_left_out() -> None:
    marked = page(headers={"\ue000": "1", "😀": "2", "b": "3", "B": "4", "10": "5", "9": "6"}, not_modified=True)
    assert '"headers":[["10","5"],["9","6"],["B","4"],["b","3"],["😀","2"],["\ue000","1"]]' in envelope_json(marked)
    assert "notModified" not in envelope_json(marked)


def test_recorded_charsets_give_different_digests_for_one_body() -> None:
    forms = [page(), page(declared_charset="utf-8"), page(declared_charset="utf8"), text_page(), binary(b"hello")]
    assert len({snapshot_digest(form) for form in forms}) == 5
    assert len({form.body_hash for form in forms}) == 1
    assert len({identity_digest(form) for form in forms}) == 1


def test_identity_is_the_digest_of_four_fields() -> None:
    snapshot = page(headers={"a": "b"})
    expected = sha256_hex(f'["src","https://example.test/a","{snapshot.body_hash}","2026-09-01T12:34:56.789Z"]'.encode())
    assert identity_digest(snapshot) == identity_digest(lookup_of(snapshot)) == expected


@given(snapshots())
def test_a_snapshot_can_be_looked_up(snapshot: Snapshot) -> None:
    validate_lookup(lookup_of(snapshot))
    released = lookup_of(snapshot, released=True)
    validate_lookup(released)
    assert released.snapshot_digest is None


@pytest.mark.parametrize(
    "changes",
    [
        {"source_id": ""},
        {"url": ""},
        {"fetched_at": ""},
        {"source_id": None},
        {"body_hash": "abc"},
        {"body_hash": HASH.upper()},
        {"body_hash": None},
        {"snapshot_digest": ""},
        {"snapshot_digest": HASH[:12]},
        {"source_id": "s" * 1025},
        {"url": "u" * 8193},
        {"fetched_at": "t" * 257},
        {"source_id": "s" * 1_048_577, "snapshot_digest": None},
    ],
)
def test_lookups_that_no_store_takes(changes: dict[str, str]) -> None:
    fields = {"source_id": "s", "url": "u", "body_hash": HASH, "fetched_at": "t", "snapshot_digest": HASH, **changes}
    with pytest.raises(InvalidSnapshotError):
        validate_lookup(Lookup(**fields))


def test_lookups_without_digest_have_the_released_limits() -> None:
    validate_lookup(Lookup(source_id="s" * 1_048_576, url="u", body_hash=HASH, fetched_at="t" * 257))
