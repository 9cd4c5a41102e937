"""A wrong seed or policy is one typed error that names the field and says what it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forage.crawler import CrawlPolicy, Seed
from forage.crawler.policy import describe_policy
from forage.egress import EgressPolicy
from forage.errors import InvalidPolicyError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_pages", -1),
        ("max_pages", 1.5),
        ("max_pages", True),
        ("max_pages", "8"),
        ("max_depth", -1),
        ("max_bytes", 0),
        ("max_seconds", 0),
        ("max_seconds", float("nan")),
        ("max_failures", -1),
        ("max_response_bytes", 0),
        ("max_response_bytes", 64 * 1024 * 1024 + 1),
        ("discovery", "everything"),
        ("discovery", None),
        ("render", "x"),
        ("mode", "offline"),
        ("same_host", "yes"),
        ("obey_robots", 1),
        ("robots_on_error", "ignore"),
        ("delay", -0.1),
        ("delay", float("inf")),
        ("delay", "1"),
        ("concurrency", 0),
        ("concurrency", 0.5),
        ("per_host", 0),
        ("window", 0),
        ("retries", 6),
        ("attempt_seconds", 0),
        ("group_by", "colour"),
        ("user_agent", "line\nbreak"),
        ("user_agent", ""),
        ("should_follow", "regex"),
        ("egress", {"guarded": False}),
    ],
)
def test_wrong_policy_names_the_field_and_what_it_takes(field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        CrawlPolicy(**{field: value})
    assert caught.value.field == field
    assert caught.value.accepted
    assert str(caught.value).startswith(f"{field}: takes ")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "url", ["", "  ", "site.test", "/path", "ftp://site.test/", "file:///etc/passwd", "http://", None, 7, b"http://a/"]
)
def test_wrong_seed_url_names_the_field(url: Any) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        Seed(url=url)
    assert caught.value.field == "seed.url"


@pytest.mark.parametrize(
    ("field", "value"),
    [("headers", {"a": 1}), ("headers", [("a", "b")]), ("id", " "), ("id", "a\ud800"), ("render", "sometimes"), ("max_response_bytes", 0)],
)
def test_wrong_seed_option_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError):
        Seed(**{"url": "https://site.test/", field: value})


def test_seed_keeps_its_own_copy_of_the_headers() -> None:
    headers = {"x-token": "a"}
    seed = Seed(url="https://site.test/", headers=headers)
    headers["x-token"] = "b"
    assert dict(seed.headers) == {"x-token": "a"}


def test_settings_in_force_are_json_and_show_every_opt_out() -> None:
    policy = CrawlPolicy(should_follow=lambda link, context: True, egress=EgressPolicy(guarded=False))
    settings = json.loads(json.dumps(describe_policy(policy)))
    assert settings["maxPages"] == 20
    assert settings["window"] == 64
    assert settings["shouldFollow"] == "custom"
    assert settings["egress"]["guarded"] is False
    assert describe_policy(CrawlPolicy()) == describe_policy(CrawlPolicy())
