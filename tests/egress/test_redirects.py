"""The judgement of a redirect, in the order of its rules; what travels on; and what is data."""

from __future__ import annotations

import string
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forage.egress.policy import EgressPolicy, RedirectHosts, default_policy
from forage.egress.redirects import REDIRECT_STATUSES, Redirect, RedirectChain, forwarded_headers, judge_redirect
from forage.egress.rules import judge_url
from forage.errors import EgressCode, EgressDeniedError, EgressError

DEFAULT = default_policy()
ANY = EgressPolicy(redirect_hosts="any")


@attrs.frozen
class Head:
    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()


def to(location: str | bytes, status: int = 302) -> Head:
    return Head(status, ((b"location", location.encode() if isinstance(location, str) else location),))


def chain(*urls: str, policy: EgressPolicy = DEFAULT, method: str = "GET") -> RedirectChain:
    return RedirectChain(policy=policy, hops=tuple(judge_url(url, policy) for url in urls), method=method)


def follow(begun: RedirectChain, head: Head) -> Redirect:
    redirect = judge_redirect(begun, head)
    assert redirect is not None
    return redirect


def refusal(begun: RedirectChain, head: Head) -> EgressDeniedError:
    with pytest.raises(EgressDeniedError) as caught:
        judge_redirect(begun, head)
    return caught.value


# What is a redirect


@pytest.mark.parametrize("status", [200, 201, 204, 300, 304, 305, 306, 309, 399, 401, 404, 500, 503])
def test_location_on_another_status_is_data(status: int) -> None:
    assert judge_redirect(chain("http://a.example/"), to("http://169.254.169.254/", status)) is None


@pytest.mark.parametrize("status", sorted(REDIRECT_STATUSES))
def test_five_statuses_are_followed(status: int) -> None:
    assert follow(chain("http://a.example/"), to("/next", status)).target.url == "http://a.example/next"


@pytest.mark.parametrize("name", [b"refresh", b"link", b"content-location", b"uri", b"alt-svc", b"x-location"])
def test_other_fields_are_data(name: bytes) -> None:
    assert judge_redirect(chain("http://a.example/"), Head(302, ((name, b"http://169.254.169.254/"),))) is None


@pytest.mark.parametrize("headers", [(), ((b"Location", b""),), ((b"Location", b" \t "),)])
def test_redirect_without_location_is_the_response(headers: Sequence[tuple[bytes, bytes]]) -> None:
    assert judge_redirect(chain("http://a.example/"), Head(302, headers)) is None


# R1


def test_limit_counts_followed_redirects() -> None:
    urls = [f"http://a.example/{n}" for n in range(6)]
    assert follow(chain(*urls[:5]), to("/x")).target.target == "/x"
    assert refusal(chain(*urls), to("/x")).code is EgressCode.REDIRECT_LIMIT
    none = EgressPolicy(max_redirects=0)
    assert refusal(chain("http://a.example/", policy=none), to("/x")).code is EgressCode.REDIRECT_LIMIT


def test_limit_comes_before_anything_in_the_location() -> None:
    urls = [f"http://a.example/{n}" for n in range(6)]
    assert refusal(chain(*urls), to("ftp://u@[bad")).code is EgressCode.REDIRECT_LIMIT


# R2


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1",
        "http://a.example:99999/",
        "http://[bad",
        "//[bad",
        "\\evil",
        "\\\\b.example/",
        "/\\b.example/",
        "http:/b.example/",
        "http:b.example",
        "http:///b.example/",
        "https:///b.example/",
        "http:\\\\b.example/",
        "///b.example/",
        "//\\b.example/",
        "//b.example\\@a.example/",
        "http://a.example\\.b.example/",
        "http://a.example\\",
        "/x\x00y",
        "/\t/b.example/",
        "ht\ttp://b.example/",
        "/x\r\nSet-Cookie: a=b",
        "/x\x7f",
        "\x0b/x",
        "/" + "x" * 16_384,
    ],
)
def test_location_that_readers_see_differently_is_invalid(location: str) -> None:
    for policy in (DEFAULT, ANY):
        error = refusal(chain("http://a.example/", policy=policy), to(location))
        assert (error.code, error.rule) == (EgressCode.REDIRECT_INVALID, "R2")


def test_differing_location_fields_are_invalid_and_equal_ones_are_one() -> None:
    both = Head(302, ((b"Location", b"/x"), (b"location", b"http://10.0.0.1/")))
    assert refusal(chain("http://a.example/"), both).code is EgressCode.REDIRECT_INVALID
    same = Head(302, ((b"Location", b"/x"), (b"LOCATION", b" /x")))
    assert follow(chain("http://a.example/"), same).target.url == "http://a.example/x"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("next", "/dir/next"),
        ("./next", "/dir/next"),
        ("../next", "/next"),
        ("?q=1", "/dir/page?q=1"),
        ("#f", "/dir/page?old"),
        ("  /next", "/next"),
        ("/next\t", "/next"),
        ("/é", "/%C3%A9"),
        ("/x\\y", "/x/y"),
        ("/x:y@z", "/x:y@z"),
        ("./x:y", "/dir/x:y"),
        ("http://a.example/next", "/next"),
        ("HTTP://A.EXAMPLE:80/next", "/next"),
        ("//a.example/next", "/next"),
        ("http://a.example./next", "/next"),
        ("//a.example.?q", "/?q"),
    ],
)
def test_location_is_resolved_as_a_browser_does(location: str, target: str) -> None:
    redirect = follow(chain("http://a.example/dir/page?old"), to(location))
    assert redirect.target.url == f"http://a.example{target}"


def test_bytes_that_are_no_utf8_are_kept_as_they_are() -> None:
    assert follow(chain("http://a.example/"), to(b"/caf\xe9")).target.target == "/caf%E9"
    assert refusal(chain("http://a.example/", policy=ANY), to(b"http://caf\xe9.example/")).code is EgressCode.REDIRECT_INVALID
    assert follow(chain("http://a.example/", policy=ANY), to("http://café.example/")).target.host == "xn--caf-dma.example"


# R3


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://a.example/", "javascript:alert(1)", "data:,x", "gopher://a.example/", "x:y"]
)
def test_other_schemes_are_refused(location: str) -> None:
    for policy in (DEFAULT, ANY):
        assert refusal(chain("http://a.example/", policy=policy), to(location)).code is EgressCode.INVALID_SCHEME


@pytest.mark.parametrize("location", ["http://u:secret@a.example/", "//@a.example/", "https://:@b.example/"])
def test_userinfo_is_refused_and_not_shown(location: str) -> None:
    error = refusal(chain("http://a.example/"), to(location))
    assert error.code is EgressCode.CREDENTIALS
    assert "secret" not in f"{error}{error.target}{error.host}"


# R4


@pytest.mark.parametrize("location", ["http://a.example/", "http://b.example/", "http://a.example.:443/", "http://10.0.0.1/"])
def test_https_never_becomes_http(location: str) -> None:
    for policy in (DEFAULT, ANY):
        assert refusal(chain("https://a.example/", policy=policy), to(location)).code is EgressCode.REDIRECT_DOWNGRADE


def test_downgrade_is_seen_anywhere_in_the_chain() -> None:
    begun = chain("http://a.example/", "https://a.example/", policy=ANY)
    assert refusal(begun, to("http://a.example/x")).code is EgressCode.REDIRECT_DOWNGRADE
    assert follow(begun, to("//a.example/x")).target.url == "https://a.example/x"


# R5


@pytest.mark.parametrize(
    "location",
    [
        "http://b.example/",
        "//b.example/",
        "http://www.a.example/",
        "http://a.example.b.example/",
        "http://xa.example/",
        "http://example/",
        "http://93.184.216.34/",
        "http://[2606:4700::1]/",
        "http://a.example:8080/",
        "https://a.example:8443/",
        "https://www.a.example/",
        "http://10.0.0.1/",
        "http://localhost/",
        "http://①②⑦.0.0.1/",
    ],
)
def test_other_host_or_port_is_refused_by_default(location: str) -> None:
    error = refusal(chain("http://a.example/"), to(location))
    assert (error.code, error.rule) == (EgressCode.REDIRECT_CROSS_HOST, "R5")


def test_refusal_carries_the_target_without_its_query() -> None:
    error = refusal(chain("http://a.example/"), to("https://www.a.example/start?token=secret#x"))
    assert error.target == "https://www.a.example/start"
    assert error.host == "www.a.example"
    assert "secret" not in f"{error}{error.target}"


def test_upgrade_of_the_same_host_is_followed() -> None:
    redirect = follow(chain("http://a.example/p?q=1"), to("https://a.example/p?q=1", 308))
    assert redirect.target.url == "https://a.example/p?q=1"
    assert not redirect.chain.only_safe_headers


def test_upgrade_is_between_the_default_ports_only() -> None:
    policy = EgressPolicy(ports=(8080, 8443))
    assert refusal(chain("http://a.example:8080/", policy=policy), to("https://a.example/")).code is EgressCode.REDIRECT_CROSS_HOST
    assert refusal(chain("http://a.example/", policy=policy), to("https://a.example:8443/")).code is EgressCode.REDIRECT_CROSS_HOST
    assert follow(chain("http://a.example:8080/", policy=policy), to("/x")).target.url == "http://a.example:8080/x"


@pytest.mark.parametrize(
    ("begun", "location", "followed"),
    [
        ("http://a.example/", "http://www.a.example/", True),
        ("http://www.a.example/", "http://a.example/", True),
        ("http://x.a.co.uk/", "http://y.a.co.uk/", True),
        ("http://a.co.uk/", "http://b.co.uk/", False),
        ("http://a.github.io/", "http://b.github.io/", False),
        ("http://github.io/", "http://a.github.io/", False),
        ("http://a.example/", "http://b.example/", False),
        ("http://a.example/", "http://xa.example/", False),
        ("http://93.184.216.34/", "http://93.184.216.35/", False),
        ("http://a.example/", "http://93.184.216.34/", False),
        ("http://93.184.216.34/", "/x", True),
        ("http://[2606:4700::1]/", "http://[2606:4700::2]/", False),
        ("http://a.example/", "https://www.a.example/", True),
    ],
)
def test_same_site_is_the_registrable_domain(begun: str, location: str, *, followed: bool) -> None:
    policy = EgressPolicy(redirect_hosts="same-site")
    if followed:
        follow(chain(begun, policy=policy), to(location))
    else:
        assert refusal(chain(begun, policy=policy), to(location)).code is EgressCode.REDIRECT_CROSS_HOST


# R6


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://169.254.169.254/", EgressCode.DENIED_ADDRESS),
        ("http://[::1]/", EgressCode.DENIED_ADDRESS),
        ("http://[::ffff:a9fe:a9fe]/", EgressCode.DENIED_ADDRESS),
        ("//127.0.0.1/", EgressCode.DENIED_ADDRESS),
        ("http://metadata.google.internal/", EgressCode.DENIED_HOST),
        ("http://kubernetes/", EgressCode.DENIED_HOST),
        ("http://2130706433/", EgressCode.INVALID_HOST),
        ("//2130706433/", EgressCode.INVALID_HOST),
        ("http://127.0.0.%31/", EgressCode.INVALID_HOST),
        ("http://b%2eexample/", EgressCode.INVALID_HOST),
        ("http://b..example/", EgressCode.INVALID_HOST),
        ("http://127.0.0.1:22/", EgressCode.INVALID_PORT),
        ("http://b.example:6379/", EgressCode.INVALID_PORT),
        ("http://a.example:443/", EgressCode.INVALID_PORT),
    ],
)
def test_target_is_judged_as_a_first_url(location: str, code: EgressCode) -> None:
    error = refusal(chain("http://a.example/", policy=ANY), to(location))
    assert error.code is code
    assert error.target is not None


def test_percent_sign_does_not_make_another_spelling_of_the_same_host() -> None:
    assert refusal(chain("http://a.example/"), to("http://a%2Eexample/x")).code is EgressCode.INVALID_HOST


# R7


@pytest.mark.parametrize("location", ["/a", "/a#2", "/x/../a", "http://a.example./a", "HTTP://A.example/a"])
def test_url_that_was_asked_before_is_a_loop(location: str) -> None:
    redirect = follow(chain("http://a.example/a", "http://a.example/b"), to(location))
    assert redirect.repeats
    with pytest.raises(EgressDeniedError) as caught:
        redirect.refuse_repeat()
    assert caught.value.code is EgressCode.REDIRECT_LOOP


@pytest.mark.parametrize("location", ["/a/", "/A", "/a?", "https://a.example/a"])
def test_url_that_differs_is_no_loop(location: str) -> None:
    redirect = follow(chain("http://a.example/a"), to(location))
    redirect.refuse_repeat()
    assert not redirect.repeats


# Method, body, headers


@pytest.mark.parametrize(
    ("status", "method", "expected", "drop_body"),
    [
        (301, "GET", "GET", False),
        (302, "POST", "GET", True),
        (301, "POST", "GET", True),
        (301, "PUT", "PUT", False),
        (302, "HEAD", "HEAD", False),
        (303, "POST", "GET", True),
        (303, "PUT", "GET", True),
        (303, "HEAD", "HEAD", False),
        (307, "POST", "POST", False),
        (308, "POST", "POST", False),
    ],
)
def test_method_of_the_next_request(status: int, method: str, expected: str, *, drop_body: bool) -> None:
    redirect = follow(chain("http://a.example/", method=method), to("/n", status))
    assert (redirect.chain.method, redirect.drop_body) == (expected, drop_body)


CALLER = (
    ("Authorization", "Bearer x"),
    ("Cookie", "a=b"),
    ("X-Custom", "v"),
    ("User-Agent", "bot/1"),
    ("Accept", "*/*"),
    ("Accept-Language", "de"),
    ("Accept-Encoding", "gzip"),
    ("Referer", "http://a.example/"),
)
SAFE = CALLER[3:7]


def test_headers_travel_within_the_origin_and_over_the_upgrade() -> None:
    begun = chain("http://a.example/")
    assert forwarded_headers(CALLER, follow(begun, to("/x"))) == CALLER
    assert forwarded_headers(CALLER, follow(begun, to("https://a.example/"))) == CALLER


def test_only_safe_headers_travel_to_another_origin_and_come_back() -> None:
    away = follow(chain("http://a.example/", policy=ANY), to("http://b.example/"))
    assert forwarded_headers(CALLER, away) == SAFE
    back = follow(away.chain, to("http://a.example/back"))
    assert forwarded_headers(CALLER, back) == SAFE


@pytest.mark.parametrize("hosts", ["same-site", "any"])
def test_another_host_of_the_same_site_is_another_origin(hosts: RedirectHosts) -> None:
    policy = EgressPolicy(redirect_hosts=hosts)
    assert forwarded_headers(CALLER, follow(chain("http://a.example/", policy=policy), to("http://www.a.example/"))) == SAFE


def test_fields_of_a_dropped_body_stay_behind() -> None:
    headers = (("Content-Type", "text/plain"), ("content-encoding", "gzip"), ("X-Custom", "v"))
    begun = chain("http://a.example/", method="POST")
    assert forwarded_headers(headers, follow(begun, to("/n", 303))) == (("X-Custom", "v"),)
    assert forwarded_headers(headers, follow(begun, to("/n", 307))) == headers


# Fails closed


def test_unexpected_failure_inside_is_a_denial() -> None:
    class Broken:
        status = 302

        @property
        def headers(self) -> Sequence[tuple[bytes, bytes]]:
            raise RuntimeError("defect")

    with pytest.raises(EgressDeniedError) as caught:
        judge_redirect(chain("http://a.example/"), Broken())
    assert caught.value.code is EgressCode.REDIRECT_INVALID


PIECES = st.sampled_from(
    [
        *"/\\?#:@%.",
        "http:",
        "https://",
        "//",
        "a.example",
        "b.example",
        "127.0.0.1",
        "[::1]",
        "\t",
        "\x00",
        "é",
        "ftp:",
        " ",
        "443",
        "localhost",
    ]
)


@given(st.lists(PIECES | st.text(string.printable, max_size=2), max_size=8).map("".join), st.sampled_from([DEFAULT, ANY]))
@example("//a.example:80", DEFAULT)
@example("http://a.example\u3002/", DEFAULT)
def test_any_location_is_refused_or_leads_where_the_policy_lets_it(location: str, policy: EgressPolicy) -> None:
    try:
        redirect = judge_redirect(chain("http://a.example/x", policy=policy), to(location))
    except EgressError:
        return
    if redirect is None:
        assert not location.strip(" \t")
        return
    assert judge_url(redirect.target.url, policy) == redirect.target
    if policy is DEFAULT:
        assert redirect.target.origin in ("http://a.example", "https://a.example")
    if redirect.target.origin != "http://a.example":
        assert redirect.chain.only_safe_headers or redirect.target.origin == "https://a.example"


@given(st.binary(max_size=30))
def test_any_bytes_are_refused_or_followed(location: bytes) -> None:
    try:
        judge_redirect(chain("http://a.example/x"), to(location))
    except EgressError:
        return
