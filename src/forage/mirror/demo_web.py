"""A small web of captures for a loopback archive: what static scans miss, a page for each way in which a browser finds it (pure data)."""

from __future__ import annotations

from typing import Final

from forage.mirror.loopback import Archived

__all__ = ["NAMES", "STAMP", "asset", "captures", "document_url", "page"]

STAMP: Final = "20120515093000"
NAMES: Final = ("deep", "late", "lists", "odd", "plain")
"""The documents."""
_TYPES: Final = {
    "css": "text/css",
    "js": "application/javascript",
    "json": "application/json",
    "png": "image/png",
    "woff": "font/woff",
    "svg": "image/svg+xml",
}


def page(name: str, body: str, *, head: str = "") -> Archived:
    """An HTML capture of ``http://site.example.org/<name>``."""
    return asset(name, f"<html><head>{head}<title>{name}</title></head><body>{body}</body></html>".encode())


def asset(name: str, body: bytes, *, timestamp: str = STAMP) -> Archived:
    kind = _TYPES.get(name.rpartition(".")[2], "text/html; charset=utf-8")
    return Archived(timestamp=timestamp, original=f"http://site.example.org/{name}", content_type=kind, body=body)


def document_url(name: str) -> str:
    return f"https://web.archive.org/web/{STAMP}/http://site.example.org/{name}"


def captures() -> list[Archived]:
    """Documents deep, late, lists, odd and plain, and everything that they ask for."""
    return [
        page("deep", "<h1>styles in styles</h1>", head='<link rel=stylesheet href="a.css">'),
        asset("a.css", b'@import "b.css"; body{background:url(bg.png)}'),
        asset("b.css", b"@font-face{src:url(f.woff)}"),
        asset("f.woff", b"FONT"),
        asset("bg.png", b"BG"),
        page("late", '<script src="app.js"></script>'),
        asset("app.js", b'fetch("late.json"); new Worker("w.js")'),
        asset("late.json", b"{}"),
        asset("w.js", b'importScripts("w2.js")'),
        asset("w2.js", b"1"),
        page("lists", '<img src="one.png" srcset="one.png 1x, two.png 2x">', head='<link rel=icon href="/icon.png">'),
        asset("one.png", b"1"),
        asset("two.png", b"2", timestamp="20130101000000"),
        asset("icon.png", b"I"),
        page("odd", '<img src="caf%C3%A9.png"><svg><use xlink:href="shapes.svg#a"></use></svg><img src="gone.png">'),
        asset("caf%C3%A9.png", b"C"),
        asset("shapes.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        page("plain", "<p>nothing else</p>"),
    ]
