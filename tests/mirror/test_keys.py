"""Keys, parsers and the link-path codec: round trips, and no input that raises or takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.mirror import keys

ANY_TEXT = st.text(st.characters(), max_size=60) | st.text(st.sampled_from("htps:/.w%0123\n\u2028é🚀\ud800#?\\ab-_"), max_size=60)
TIMESTAMPS = st.text(st.sampled_from("0123456789"), min_size=4, max_size=14)
FLAGS = st.sampled_from(["", "im_", "cs_", "if_"])
WELL_FORMED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def test_the_hash_of_a_known_key() -> None:
    digest = "77c4b856ffc51a15b686125ca9ce901456eee045e9639b95fbcd8ae3970dd1ac"
    assert keys.key_hash("20140403040000/http://example.com/") == digest
    assert keys.body_path(digest) == f"cap/77/{digest}"
    assert keys.sidecar_path(digest) == f"meta/77/{digest}.json"


@given(WELL_FORMED)
def test_a_link_path_decodes_to_its_key(key: str) -> None:
    path = keys.format_capture_path(key)
    assert path.isascii()
    assert path.isprintable()
    assert keys.decode_capture_path(path) == f"/{key}"


@given(ANY_TEXT)
def test_decoding_a_path_never_raises_and_is_the_identity_without_escapes(text: str) -> None:
    decoded = keys.decode_capture_path(text)
    assert "%" in text or decoded == text


@given(ANY_TEXT)
def test_no_parser_raises(text: str) -> None:
    for parse in (keys.parse_wayback_path, keys.parse_wayback_url, keys.parse_archive_url, keys.parse_crawl_input, keys.repair_original):
        parse(text)
    keys.key_hash(text)
    keys.is_addressable(text)


@given(TIMESTAMPS, FLAGS, st.sampled_from(["http://a.org/", "https://b.org/x?y=1#z", "http://c.org:80"]))
def test_both_parsers_agree_on_plain_urls(timestamp: str, flag: str, original: str) -> None:
    url = keys.archive_url(timestamp, flag, original)
    foreign, serving = keys.parse_wayback_url(url), keys.parse_archive_url(url)
    assert foreign is not None
    assert serving is not None
    assert foreign.key == serving.key == keys.capture_key(timestamp, original)
    assert (foreign.flags, serving.flag or "") == (flag, flag)
    assert serving.archive_url == url
    assert keys.split_key(serving.key) == (timestamp, original)


@given(st.text(st.sampled_from("abc/.:-"), min_size=1, max_size=20))
def test_a_repaired_original_is_left_alone_by_a_second_repair(text: str) -> None:
    repaired = keys.repair_original(text)
    if repaired is not None:
        assert keys.repair_original(repaired) == repaired


@pytest.mark.parametrize(
    ("key", "addressable"),
    [
        ("2014/http://a.org/", True),
        ("2014/http://a.org/..", False),
        ("2014/http://a.org/./x", False),
        ("2014/http://a.org/%2e/x", True),
        ("2014/http://a.org/x?y=/../z", True),
        ("2014/http://a.org/...", True),
        ("2014/http://a.org/x#/../y", False),
    ],
)
def test_keys_that_a_browser_cannot_ask_for(key: str, addressable: bool) -> None:
    assert keys.is_addressable(key) is addressable
    from ada_url import URL

    parsed = URL(f"http://127.0.0.1{keys.document_path(key)}")
    assert (parsed.pathname + parsed.search == keys.document_path(key)) is addressable


@pytest.mark.parametrize("host", ["archive.org", "WEB.archive.org", "a.b.archive.org"])
def test_hosts_of_the_family(host: str) -> None:
    assert keys.is_archive_family(host)


@pytest.mark.parametrize("host", ["archive.org.", "notarchive.org", "archive.org.evil.example", ""])
def test_hosts_outside_the_family(host: str) -> None:
    assert not keys.is_archive_family(host)


@pytest.mark.parametrize("text", ["/2014/" + "a." * 100_000 + "!", "/2014/" + "a" * 200_000, "/" + "2" * 200_000, "http:/" * 50_000])
def test_parsing_takes_linear_time(text: str) -> None:
    started = time.process_time()
    for parse in (keys.parse_wayback_path, keys.parse_wayback_url, keys.parse_crawl_input, keys.repair_original):
        parse(text)
        parse(f"https://web.archive.org/web{text}")
    assert time.process_time() - started < 1
