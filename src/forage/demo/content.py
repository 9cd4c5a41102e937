"""The pages of the bundled site: a small museum whose guest book anybody may write into.

Pure. Owns what each path answers, every kind of answer that a crawl meets in its first hour among them: redirects, an older charset, a
content coding, a busy page, a missing one, a closed folder, sitemaps in parts, a calendar without end, and links that lead inside. Serving
them is `forage.demo.site`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from html import escape

import attrs

__all__ = ["REBINDING_HOST", "Answer", "DemoPages"]

REBINDING_HOST = "rebind.harbour-museum.test"

_STYLE = "body{font:16px/1.5 sans-serif;margin:2em auto;max-width:40em}nav a{margin-right:1em}"
_OBJECTS = {
    "lamp": ("The harbour lamp", "Burned colza oil until 1871, then paraffin. The wick was trimmed every four hours."),
    "sextant": ("A brass sextant", "Bought second hand by a pilot who could not afford a new one, and used it for forty years."),
    "logbook": ("Logbook of the Petrel", "Weather, cargo and one marriage, in the same careful hand."),
    "buoy": ("The bell buoy", "It drifted across the bay twice. Nobody minded the first time."),
    "chart": ("The hand-drawn chart", "Depths in fathoms; the rock that everybody knew is missing."),
    "bell": ("The fog bell", "Rung by hand for nineteen hours in the fog of 1904."),
    "whale": ("The whale's jaw", "Too long for the hall: it has had a roof of its own since 1932, and no door leads to it."),
}
# The smallest picture that is one: 1x1, white.
_PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a4944415478da63f80f00010101001cb08c990000000049454e44ae426082"
)
_MONTH = re.compile(r"/calendar/([0-9]{4})/(0[1-9]|1[0-2])", re.ASCII)


@attrs.frozen(kw_only=True)
class Answer:
    """What one path answers; ``first`` is sent instead the first time that the path is asked for."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    first: Answer | None = None


class DemoPages:
    """All answers by path, for a site served at ``origin`` whose calendar starts in ``year`` and has no end."""

    def __init__(self, origin: str, *, year: int) -> None:
        self._answers = {**_entrance(origin), **_collection(), **_around(origin), **_for_machines(origin)}
        self._answers["/calendar/"] = _page("Calendar", "Pick a month.", links=[(f"/calendar/{year}/01", "January")])

    def get(self, path: str) -> Answer:
        """The answer for a path without query; 404 where there is none."""
        month = _MONTH.fullmatch(path)
        if month is not None:
            return _month(int(month[1]), int(month[2]))
        missing = Answer(status=404, headers=(("Content-Type", "text/plain; charset=utf-8"),), body=b"No such page.\n")
        return self._answers.get(path, missing)


def _page(title: str, *paragraphs: str, links: Iterable[tuple[str, str]] = ()) -> Answer:
    return _html(_document(title, paragraphs, links).encode("utf-8"), "text/html; charset=utf-8")


def _html(body: bytes, content_type: str, *more: tuple[str, str]) -> Answer:
    return Answer(headers=(("Content-Type", content_type), *more), body=body)


def _document(title: str, paragraphs: Iterable[str], links: Iterable[tuple[str, str]], charset: str = "utf-8") -> str:
    text = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    items = "\n".join(f'<li><a href="{escape(url)}">{escape(label)}</a></li>' for url, label in links)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="{charset}"><title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n'
        f'<body><nav><a href="/">Home</a><a href="/collection/">Collection</a><a href="/visit">Visit</a></nav>\n'
        f"<h1>{escape(title)}</h1>\n{text}\n<ul>\n{items}\n</ul>\n</body></html>\n"
    )


def _redirect(location: str, status: int = 301) -> Answer:
    return Answer(status=status, headers=(("Location", location),))


def _entrance(origin: str) -> Mapping[str, Answer]:
    home = [
        ("/about", "About us"),
        ("/collection/", "The collection"),
        ("/visit", "Your visit"),
        ("/news/", "News"),
        ("/guestbook", "Guest book"),
        ("/calendar/", "Calendar"),
        ("/presse", "For the press"),
        ("/tides", "Tides today"),
        ("/keepers/rota", "Rota (staff only)"),
        ("mailto:hello@harbour-museum.test", "Write to us"),
    ]
    return {
        "/": _page("Harbour Museum", "Lamps, logbooks and the people who kept them.", links=home),
        "/about": _page("About us", "Founded in 1898 by three pilots and a baker.", links=[("/cafe", "The café")]),
        "/presse": _redirect("/media"),
        "/media": _redirect(f"{origin}/press/", 302),
        "/press/": _page("For the press", "Pictures are free to print if you name the museum.", links=[("/plan.png", "Plan of the house")]),
        "/plan.png": Answer(headers=(("Content-Type", "image/png"),), body=_PICTURE),
    }


def _collection() -> Mapping[str, Answer]:
    shown = [(f"/collection/{name}", title) for name, (title, _) in _OBJECTS.items() if name != "whale"]
    links = [*shown, ("/collection/anchor", "The anchor (on loan)")]
    objects = {f"/collection/{name}": _page(title, text) for name, (title, text) in _OBJECTS.items()}
    return {"/collection/": _page("The collection", "Six rooms, one object each.", links=links), **objects}


def _around(origin: str) -> Mapping[str, Answer]:
    port = origin.rpartition(":")[2]
    cafe = _document("The café", ["Fresh crêpes, naïve paintings, “harbour” tea for £2 – or 3 €."], [], "windows-1252")
    storm = _document("After the storm", ["The roof held. The sign did not.", "We found it in the next village."], [("/tides", "Tides")])
    busy = Answer(status=429, headers=(("Retry-After", "1"), ("Content-Type", "text/plain; charset=utf-8")), body=b"One moment, please.\n")
    written_by_visitors = [
        ("http://169.254.169.254/latest/meta-data/iam/security-credentials/", "lovely lamp!!"),
        (f"http://localhost:{port}/keepers/rota", "see you there"),
        ("http://10.0.0.5/admin", "my own collection"),
        ("http://[::ffff:192.168.1.1]/", "a nice view"),
        ("http://metadata.google.internal/computeMetadata/v1/", "great tides"),
        (f"http://{REBINDING_HOST}/", "a friendly museum"),
    ]
    return {
        "/visit": _page("Your visit", "Open every day but Monday.", links=[("/access", "Getting here"), ("/lighthouse", "The lighthouse")]),
        "/access": _redirect("/visit/access"),
        "/visit/access": _page("Getting here", "By boat, or along the sea wall when the tide is out."),
        # A page of the site itself that sends its readers to the cloud's metadata service.
        "/lighthouse": _redirect("http://169.254.169.254/latest/user-data", 302),
        "/cafe": _html(cafe.encode("windows-1252"), "text/html; charset=windows-1252"),
        "/tides": attrs.evolve(_page("Tides today", "High water at 06:12 and 18:40."), first=busy),
        "/news/": _page(
            "News", "Two stories so far.", links=[("/news/storm", "After the storm"), ("/news/reopening", "We are open again")]
        ),
        "/news/storm": _html(gzip.compress(storm.encode("utf-8"), mtime=0), "text/html; charset=utf-8", ("Content-Encoding", "gzip")),
        "/news/reopening": _page("We are open again", "Come in, it is dry."),
        "/guestbook": _page("Guest book", "Anybody may write here, and does.", links=written_by_visitors),
        "/keepers/rota": _page("Rota", "Not for the public, so robots.txt says."),
    }


def _month(year: int, month: int) -> Answer:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    links = [
        ("/calendar/{}/{:02d}".format(*following), "next month"),
        (f"/calendar/{year + 1}/{month:02d}", "next year"),
        (f"/calendar/{year + 10}/{month:02d}", "in ten years"),
    ]
    return _page(f"Calendar, {year}-{month:02d}", "Nothing planned.", links=links)


def _for_machines(origin: str) -> Mapping[str, Answer]:
    rooms = _urlset([f"{origin}/collection/{name}" for name in _OBJECTS])
    rest = _urlset([f"{origin}{path}" for path in ("/", "/about", "/visit", "/news/")])
    parts = "".join(f"<sitemap><loc>{origin}{path}</loc></sitemap>" for path in ("/sitemap-rooms.xml.gz", "/sitemap-rest.xml"))
    index = f'<?xml version="1.0" encoding="UTF-8"?>\n<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{parts}</sitemapindex>\n'
    robots = f"User-agent: *\nDisallow: /keepers/\n\nSitemap: {origin}/sitemap.xml\n"
    return {
        "/robots.txt": Answer(headers=(("Content-Type", "text/plain; charset=utf-8"),), body=robots.encode()),
        "/sitemap.xml": _html(index.encode(), "application/xml"),
        "/sitemap-rooms.xml.gz": _html(gzip.compress(rooms, mtime=0), "application/gzip"),
        "/sitemap-rest.xml": _html(rest, "application/xml"),
    }


def _urlset(urls: Iterable[str]) -> bytes:
    rows = "".join(f"<url><loc>{escape(url)}</loc></url>" for url in urls)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    return f"{head}{rows}</urlset>\n".encode()
