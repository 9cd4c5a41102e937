"""Pages that answer as the site does for what it does not have."""

from __future__ import annotations

import pytest

from forage.crawler.soft404 import Answer, MissingPage, is_soft_404

NAV = "<nav>" + " ".join(f"<a href=/{word}>{word}</a>" for word in ("home", "about", "products", "blog", "contact")) + "</nav>"
ARTICLE = "<p>Turnover rose in three of four regions while costs stayed flat.</p>"


def missing(path: str, extra: str = "") -> str:
    return f"<title>Not found</title>{NAV}<h1>Page not found</h1><p>We could not find {path}.</p>{extra}"


PROBE = Answer(status=200, body=missing("/zz-8f3a"), url="https://site.test/zz-8f3a")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Answer(status=200, body=missing("/gone"), url="https://site.test/gone"), True),
        (Answer(status=200, body=missing("gone away"), url="https://site.test/gone-away"), True),
        (Answer(status=200, body=missing("/gone", "<script>t=17031</script><!-- 17:03 --><p>Request 91bc17</p>")), True),
        (Answer(status=200, body=missing("/gone").encode()), True),
        (Answer(status=404, body=missing("/gone")), False),
        (Answer(status=503, body=missing("/gone")), False),
        (Answer(status=302, location="/"), False),
        (Answer(status=200, body=f"<title>Report</title>{NAV}<h1>Report</h1>{ARTICLE}"), False),
        (Answer(status=200, body=f"<title>Not found</title>{NAV}<h1>Other</h1><p>We could not find /gone.</p>"), False),
        (Answer(status=200, body=missing("/gone", ARTICLE * 3)), False),
        (Answer(status=200, body=""), False),
        (Answer(status=200, body=b"%PDF-1.7"), False),
    ],
)
def test_same_text_title_and_headings_are_a_soft_404(page: Answer, expected: bool) -> None:
    assert is_soft_404(page, PROBE) is expected


@pytest.mark.parametrize("probe", [Answer(status=404, body=missing("/x")), Answer(status=410), Answer(status=500), Answer(status=429)])
def test_no_verdict_where_the_site_is_honest_or_the_probe_failed(probe: Answer) -> None:
    assert is_soft_404(Answer(status=200, body=probe.body), probe) is False


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Answer(status=301, location="https://site.test/", url="https://site.test/old"), True),
        (Answer(status=302, location="/#top", url="https://site.test/old"), True),
        (Answer(status=302, location="/new/", url="https://site.test/new"), False),
        (Answer(status=302, location="http://[bad", url="https://site.test/new"), False),
        (Answer(status=302, url="https://site.test/new"), False),
        (Answer(status=200, body="x"), False),
    ],
)
def test_redirects_to_where_unknown_paths_go(page: Answer, expected: bool) -> None:
    rule = MissingPage(Answer(status=302, location="/", url="https://site.test/zz"))
    assert rule.matches(page) is expected


def test_empty_answers_are_alike() -> None:
    assert is_soft_404(Answer(status=200), Answer(status=200))
    assert is_soft_404(Answer(status=200, body="<p> 12:30 </p>"), Answer(status=200, body="<p> 12:31 </p>"))
    assert not is_soft_404(Answer(status=200, body="<img src=a>"), Answer(status=200, body="<img src=b>"))


def test_unrendered_application_proves_nothing() -> None:
    shell = "<title>App</title><div id=root>Loading</div><script src=/app.js></script>"
    assert not is_soft_404(Answer(status=200, body=shell), Answer(status=200, body=shell))


def test_text_within_app_script_is_no_text() -> None:
    page = Answer(status=200, body=missing("/x", "<script>" + "word " * 500 + "</script>"))
    assert is_soft_404(page, PROBE)
