"""A small web of captures for a real browser: a document for each way in which a page asks for things that no scan of it finds."""

from __future__ import annotations

from typing import Final

from forage.mirror.demo_web import STAMP, asset, page
from forage.mirror.loopback import Archived

__all__ = ["COMPLETE", "captures", "key_of"]

COMPLETE: Final = ("depth", "images", "scripts", "hash#tag", "caf\u00e9")
"""Documents that must verify."""

_DEEP = '<link rel=stylesheet href="a.css">'
_IMAGES = """
<img srcset="s1.png 1x, s2.png 2x" src="s1.png">
<div style="height:9000px"></div>
<img loading=lazy src="lazy.png">
<div id=end></div>
<script>
new IntersectionObserver((rows, observer) => {
  if (rows[0].isIntersecting) { observer.disconnect(); new Image().src = "seen" + ".png" }
}).observe(document.getElementById("end"))
</script>
"""
_APP = b"""
setTimeout(() => fetch("late" + ".json"), 300);
new Worker("w" + ".js");
addEventListener("pagehide", () => navigator.sendBeacon("bye" + ".gif", "x"));
"""


def key_of(name: str) -> str:
    return f"{STAMP}/http://site.example.org/{name}"


def captures() -> list[Archived]:
    """The documents, and what they ask for."""
    return [
        page("depth", "<p>text in the font</p>", head=_DEEP),
        asset("a.css", b'@import "b.css"; p{color:red}'),
        asset("b.css", b"@font-face{font-family:f;src:url(f.woff)} p{font-family:f}"),
        asset("f.woff", b"FONT"),
        page("images", _IMAGES, head='<link rel=icon href="icon.png">'),
        *(asset(name, b"x") for name in ("s1.png", "s2.png", "lazy.png", "seen.png", "icon.png", "bye.gif")),
        page("scripts", '<script src="app.js"></script>'),
        asset("app.js", _APP),
        asset("late.json", b"{}"),
        asset("w.js", b'importScripts("w2" + ".js")'),
        asset("w2.js", b'fetch("deep" + ".json")'),
        asset("deep.json", b"{}"),
        # Asked for without its fragment, and with its letters encoded: that is how they go on the wire.
        page("hash", '<img src="s1.png">'),
        page("caf%C3%A9", '<img src="%C3%A9t%C3%A9.png">'),
        asset("%C3%A9t%C3%A9.png", b"x"),
        *_blocked(),
    ]


def _blocked() -> list[Archived]:
    return [
        page("set", '<script>new Image().src = "set" + Math.floor(2 * Math.random()) + ".gif"</script>'),
        page("new", '<script>new Image().src = "n" + Math.random() + ".gif"</script>'),
        page("chain", "", head='<link rel=stylesheet href="c0.css">'),
        *(asset(f"c{n}.css", f'@import "c{n + 1}.css";'.encode()) for n in range(9)),
        page("stats", '<script>new Image().src = "https:" + "//stats.example.net/p.gif"</script>'),
        page("rotten", '<img src="rot.png">'),
        asset("rot.png", b"sound"),
        page(
            "abroad",
            f'<img src="s1.png"><script>new Image().src = "https:" + "//web.archive.org/web/{STAMP}im_/" + "{_site("s1.png")}"</script>',
        ),
        page(
            "leaves",
            '<script>setTimeout(() => { location.href = "https:" + "//elsewhere.example.net/" }, 20); setTimeout(() => {'
            'const form = document.createElement("form"); form.action = "https:" + "//form.example.net/"; document.body.append(form);'
            "form.submit() }, 120)</script>",
        ),
        page("busy", '<script>setTimeout(() => { for (;;) {} }, 50)</script><img src="s1.png">'),
    ]


def _site(name: str) -> str:
    return f"http://site.example.org/{name}"
