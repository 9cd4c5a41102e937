"""The policy file: what it opens, and that nothing is opened by a slip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.errors import InvalidPolicyError
from forage.mirror.originals import is_beacon, is_fetchable, is_unmirrorable
from forage.mirror.policy import EscapePolicy, compile_policy, parse_policy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["version", "escapes", "host", "reason", "csp"]), inner, max_size=3)
    ),
    max_leaves=10,
)


def test_the_default_lets_nothing_through() -> None:
    assert EscapePolicy().match("https://example.com/") is None


def test_csp_entries_are_matched_by_directive_and_source() -> None:
    policy = compile_policy({"csp": [{"directive": "Script-Src", "source": " eval ", "reason": "old library"}, {"directive": "img-src"}]})
    found = policy.sanction("script-src", "eval")
    assert found is not None
    assert found.reason == "old library"
    assert policy.sanction("script-src", "inline") is None
    assert policy.sanction("img-src", "") is None


def test_the_committed_policy_sanctions_nothing() -> None:
    committed = Path(__file__).parents[2] / "policy" / "allowed-escapes.json"
    assert parse_policy(committed.read_text("utf-8")) == EscapePolicy()


def test_a_source_may_be_written_as_a_scheme() -> None:
    policy = compile_policy({"csp": [{"directive": "img-src", "source": "data:"}]})
    assert policy.sanction("img-src", "data") == policy.sanction("IMG-SRC", "data:") == policy.csp[0]


@pytest.mark.parametrize("text", ["", "{", "nope", "\ufeff{}"])
def test_a_policy_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidPolicyError):
        parse_policy(text)


@given(JSON)
def test_any_document_compiles(document: Any) -> None:
    policy = compile_policy(document)
    assert all(entry.host for entry in policy.escapes)
    assert policy.match("https://a.example/") is None or policy.escapes


@given(st.text(max_size=40), st.text(max_size=40))
def test_matching_never_raises(host: str, url: str) -> None:
    compile_policy({"escapes": [{"host": host}]}).match(url)


@given(st.text(st.characters(), max_size=40))
def test_judging_an_original_never_raises(original: str) -> None:
    assert is_unmirrorable(original) is (not is_fetchable(original) or is_beacon(original))


@pytest.mark.parametrize("original", ["http://metadata:text/x", "http://javascript:80/", "vbscript:x", "BLOB:x"])
def test_what_no_request_can_bring(original: str) -> None:
    assert not is_fetchable(original)
