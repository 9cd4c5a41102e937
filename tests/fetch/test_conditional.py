"""Validators of a kept snapshot."""

from __future__ import annotations

import pytest

from forage.fetch.conditional import NO_VALIDATORS, validators_of
from forage.snapshots import Snapshot

URL = "https://site.test/a"
HASH = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def kept(headers: dict[str, str] | None, *, url: str = URL, status: int = 200) -> Snapshot:
    return Snapshot(
        source_id="s", url=url, status=status, fetched_at="2026-08-01T00:00:00.000Z", body="hello", body_hash=HASH, headers=headers
    )


def test_validators_go_out_exactly_as_they_came() -> None:
    found = validators_of(kept({"etag": 'W/"1"', "last-modified": "x"}, url=f"{URL}#top"), f"{URL}#end")
    assert found.headers == (("If-None-Match", 'W/"1"'), ("If-Modified-Since", "x"))
    assert found.etag == 'W/"1"'
    assert found


@pytest.mark.parametrize(
    "prior",
    [
        None,
        kept(None),
        kept({}),
        kept({"ETag": '"1"'}),
        kept({"etag": ""}),
        kept({"etag": '"1"'}, url="https://site.test/b"),
        kept({"etag": '"1"'}, status=206),
        kept({"etag": '"1"'}, status=404),
        kept({"etag": '"1"', "vary": "accept, *"}),
        kept({"etag": '"1"\r\nX-Evil: 1'}),
        kept({"etag": '"caf\xe9"'}),
        kept({"etag": "x" * 5000}),
    ],
)
def test_a_snapshot_that_says_nothing_of_this_request_gives_none(prior: Snapshot | None) -> None:
    assert validators_of(prior, URL) == NO_VALIDATORS
    assert not NO_VALIDATORS
