"""A small web of captures for a real browser: a document for each way in which a page asks for things that no scan of it finds."""

from __future__ import annotations

from typing import Final

from forage.mirror.demo_web import STAMP, asset, page
from forage.mirror.loopback import Archived

__all__ = ["COMPLETE", "WAYS_OUT", "captures", "key_of", "way_out"]

COMPLETE: Final = ("depth", "images", "scripts", "hash#tag", "caf\u00e9")
"""Documents that must verify."""

_WAYS: Final = (
    "frame srcdoc dataframe video poster svg picture input background mask fetch beacon websocket eventsource xhr module worklet font "
    "blobworker serviceworker preload prefetch modulepreload stylesheet icon pagehide pagehide-fetch hidden popup ping"
)
WAYS_OUT: Final = tuple(_WAYS.split())
"""Hosts, each of which the page ``out`` asks for in another way."""

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


def way_out(name: str) -> str:
    return f"{name}.out.example.net"


_MARKUP: Final = """
<iframe srcdoc='<img src=https:@@srcdoc.HOST/x.png>'></iframe>
<iframe sandbox src='data:text/html,<img src=https:@@dataframe.HOST/>'></iframe>
<video src='https:@@video.HOST/v.mp4' poster='https:@@poster.HOST/p.png' autoplay muted></video>
<svg><image href='https:@@svg.HOST/i.png'/></svg><picture><source srcset='https:@@picture.HOST/p.webp'><img></picture>
<input type=image src='https:@@input.HOST/i.png'><a id=ping href='#x' ping='https:@@ping.HOST/'>x</a>
<p style='background:url(https:@@background.HOST/b.png);-webkit-mask:url(https:@@mask.HOST/m.png)'>text</p>
"""
# What an archive rewrites is no way out: the markup is put together at run time.
_OUT: Final = r"""
<script>
const out = name => "https:" + "//" + name + ".HOST/", quietly = done => done && done.catch && done.catch(() => 0);
const blob = text => URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
document.body.insertAdjacentHTML("beforeend", `MARKUP`.replaceAll("@@", "//"));
const frame = document.createElement("iframe"); frame.src = out("frame"); document.body.append(frame);
quietly(fetch(out("fetch"), {mode: "no-cors"})); navigator.sendBeacon(out("beacon"), "x");
new WebSocket(out("websocket").replace("https", "wss")); new EventSource(out("eventsource"));
const asked = new XMLHttpRequest(); asked.open("GET", out("xhr")); asked.send();
quietly(import(out("module") + "m.js")); quietly(CSS.paintWorklet.addModule(out("worklet")));
quietly(new FontFace("f", "url(" + out("font") + ")").load());
new Worker(blob("fetch('" + out("blobworker") + "')")); quietly(navigator.serviceWorker.register("sw" + ".js"));
for (const rel of ["preload", "prefetch", "modulepreload", "stylesheet", "icon"]) {
  const link = document.createElement("link"); link.rel = rel; link.as = rel == "preload" ? "image" : "script"; link.href = out(rel);
  document.head.append(link);
}
document.getElementById("ping").click(); open(out("popup"));
addEventListener("pagehide", () => { new Image().src = out("pagehide"); fetch(out("pagehide-fetch"), {keepalive: true, mode: "no-cors"}) });
document.addEventListener("visibilitychange", () => navigator.sendBeacon(out("hidden"), "x"));
</script>
""".replace("MARKUP", _MARKUP).replace("HOST", "out.example.net")
_SERVICE: Final = b"addEventListener('install', e => e.waitUntil(fetch('https://serviceworker.out.example.net/').catch(() => 0)))"


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
        page("out", _OUT),
        asset("sw.js", _SERVICE),
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
        page("leaves", '<script>addEventListener("load", () => { location.href = "https:" + "//elsewhere.example.net/" })</script>'),
        page(
            "submits",
            '<script>addEventListener("load", () => { const form = document.createElement("form");'
            'form.action = "https:" + "//form.example.net/"; document.body.append(form); form.submit() })</script>',
        ),
        page("busy", '<script>setTimeout(() => { for (;;) {} }, 50)</script><img src="s1.png">'),
    ]


def _site(name: str) -> str:
    return f"http://site.example.org/{name}"
