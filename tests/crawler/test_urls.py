"""Fetch URLs, their keys and the scope of a crawl."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forage.crawler.urls import canonical_url, dedupe_key, origin_of, same_host

PAGE = "https://site.test/dir/page.html?q=1#top"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:secret@site.test/a", "https://site.test/a"),
        ("https://user@site.test:8443/a@b", "https://site.test:8443/a@b"),
        ("https://a%40b@site.test/", "https://site.test/"),
        ("//u:p@other.test", "https://other.test/"),
        ("#!/route", "https://site.test/dir/page.html?q=1"),
        ("x#a#b?c", "https://site.test/dir/x"),
        ("?#x", "https://site.test/dir/page.html?"),
        ("HTTPS://SITE.TEST", "https://site.test/"),
        ("http://[::FFFF:1.2.3.4]/", "http://[::ffff:102:304]/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("https://xn--bcher-kva.test/", "https://xn--bcher-kva.test/"),
        ("https://xn--zca.test/", "https://xn--zca.test/"),
        ("/a\ud800b", "https://site.test/a%EF%BF%BDb"),
        ("/\ud83d\ude00", "https://site.test/%F0%9F%98%80"),
        ("/x?\x00y", "https://site.test/x?%00y"),
    ],
)
def test_fetch_url_is_the_serialisation_without_fragment_and_credentials(text: str, expected: str) -> None:
    assert canonical_url(text, PAGE) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("javascript:void(0)", "data:text/html,x", "mailto:a@site.test", "file:///etc/passwd", "ws://site.test/", "ftp://site.test/"),
        *("view-source:https://site.test/", "jar:https://site.test/!/", "blob:https://site.test/1", "intent://x#Intent;end"),
        *("http://", "https://:80/", "http://a b/", "http://[::1", "http://[bad", "http://site.test:65536/", "http://site.test:x/"),
        *("http://1.2.3.256/", "http://1.2.3.4.5/", "http://%2F/", "http://a%b/", "https://exa<mple/", "http://\u00ad/"),
        *("https://xn--a/", "https://xn--/", "https://a.xn--0.test/", "https://xn--abc-.test/", "https://XN--A.test:8443/"),
    ],
)
def test_what_is_no_crawlable_url_is_none(text: str) -> None:
    assert canonical_url(text, PAGE) is None


@pytest.mark.parametrize("base", ["mailto:a@site.test", "about:blank", "data:text/html,x", "not a url", ""])
def test_relative_reference_needs_a_base_that_can_have_one(base: str) -> None:
    assert canonical_url("x", base) is None
    assert canonical_url("x") is None


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://site.test/%7euser/%2d%2e%5f", "https://site.test/~user/-._"),
        ("https://site.test/%3f%23%2f%25", "https://site.test/%3F%23%2F%25"),
        ("https://site.test/%%34%31", "https://site.test/%%34%31"),
        ("https://site.test/%4%31", "https://site.test/%4%31"),
        ("https://site.test/%%61%62%63", "https://site.test/%%61%62c"),
        ("https://site.test./", "https://site.test/"),
        ("https://site.test.:8443/a.", "https://site.test:8443/a."),
        ("https://site.test../", "https://site.test/"),
        ("https://[2001:db8::1]:8443/a?b", "https://[2001:db8::1]:8443/a?b"),
        ("https://site.test/a;JSESSIONID=1;v=2;phpsessid=9", "https://site.test/a;v=2"),
        ("https://site.test/a;jsessionid=1/b;jsessionid=2", "https://site.test/a/b"),
        ("https://site.test/a;jsessionid", "https://site.test/a;jsessionid"),
        ("https://site.test/a%3Bjsessionid=1", "https://site.test/a%3Bjsessionid=1"),
        ("https://site.test/..;jsessionid=1/b", "https://site.test/..;jsessionid=1/b"),
        ("https://site.test/?", "https://site.test/"),
        ("https://site.test/?&&", "https://site.test/"),
        ("https://site.test/?b&a=&=&a", "https://site.test/?=&a=&a&b"),
        ("https://site.test/?utm_source=a", "https://site.test/"),
        ("https://site.test/?u%74m_source=a&x=1", "https://site.test/?x=1"),
        ("https://site.test/?UTM_Source=a&x=1", "https://site.test/?x=1"),
        ("https://site.test/?PHPSESSID=1&ASPSESSIONIDABC=2&x=1", "https://site.test/?x=1"),
        ("https://site.test/?fbclid=1&msclkid=2&mc_cid=3&x=1", "https://site.test/?x=1"),
        ("https://site.test/?sid=1&s=2&id=3&ref=4&session=5", "https://site.test/?id=3&ref=4&s=2&session=5&sid=1"),
        ("https://site.test/?a;b&A=1&a=2", "https://site.test/?A=1&a=2&a;b"),
        ("https://site.test/?q=a+b&q=a%20b", "https://site.test/?q=a+b&q=a%20b"),
        ("https://site.test/x#frag?a", "https://site.test/x"),
        ("http://site.test/index.html", "http://site.test/index.html"),
    ],
)
def test_key_folds_spellings_and_never_values(url: str, key: str) -> None:
    assert dedupe_key(url) == key
    assert dedupe_key(key) == key


url_text = st.text(alphabet=st.sampled_from(list("ab/.?#%&=;:@[]\\ \t\n1234567890ABCDEFtrue~-_+'\"<>é日\ud800")), max_size=40)
escapes = st.lists(
    st.sampled_from(["%", "%4", "%41", "%2e", "%2E", "%25", "%3b", ";jsessionid=", "/", ".", "&", "=", "?", "a", "utm_source", "u"])
)


@given(url_text | st.text(max_size=40))
@example("https://site.test/%%34%31")
@example("https://u@site.test//..;jsessionid=1")
def test_fetch_url_and_key_are_fixed_points(text: str) -> None:
    for url in (canonical_url(text), canonical_url(text, PAGE), canonical_url("https://site.test/" + text)):
        if url is not None:
            assert canonical_url(url) == url
            key = dedupe_key(url)
            assert dedupe_key(key) == key
            assert canonical_url(key) is not None


@given(escapes)
def test_key_of_a_key_is_the_key_for_all_escapes(parts: list[str]) -> None:
    url = canonical_url("https://site.test/" + "".join(parts))
    assert url is not None
    key = dedupe_key(url)
    assert dedupe_key(key) == key
    assert canonical_url(key) == key


@given(url_text)
def test_key_is_total_over_any_text(text: str) -> None:
    assert dedupe_key(dedupe_key(text)) == dedupe_key(text)


@pytest.mark.parametrize(
    ("url", "seed", "inside"),
    [
        ("https://site.test/a", "https://site.test/", True),
        ("http://site.test/a", "https://site.test/b", True),
        ("https://site.test/a", "http://site.test/b", True),
        ("https://site.test./a", "http://site.test/b", True),
        ("https://site.test:8443/a", "https://site.test/", False),
        ("http://site.test:443/a", "https://site.test/", False),
        ("https://site.test/a", "https://site.test:8443/", False),
        ("https://site.test:8443/a", "https://site.test:8443/", True),
        ("https://site.test.:8443/a", "https://site.test:8443/", True),
        ("http://site.test:8443/a", "https://site.test:8443/", False),
        ("https://www.site.test/", "https://site.test/", False),
        ("https://site.test.evil.test/", "https://site.test/", False),
        ("http://[2001:db8::1]/", "https://[2001:db8::1]/", True),
        ("http://[2001:db8::1]:81/", "https://[2001:db8::1]:81/", False),
        ("http://127.0.0.1:8000/x", "http://127.0.0.1:8000/", True),
    ],
)
def test_scope_is_the_host_on_default_ports_or_the_exact_origin(url: str, seed: str, inside: bool) -> None:
    assert same_host(url, seed) is inside


def test_origin_ends_where_the_path_begins() -> None:
    assert origin_of("https://site.test:8443/a://b?c#d") == "https://site.test:8443"
    assert origin_of("https://site.test?x/y") == "https://site.test"
