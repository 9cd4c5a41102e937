"""The seam to a browser: what a renderer is, and when a plain page is given to one.

Owns the protocol and the rules of ``render``; no browser is started here. A renderer that fails costs a warning, never the plain snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from forage.errors import ForageError
from forage.fetch.settings import Render
from forage.snapshots import Snapshot, looks_like_js_shell, rendered_snapshot

__all__ = ["RenderedPage", "Renderer", "Rendering", "kept_plain", "render_over", "wants_render"]


class RenderedPage(Protocol):
    """What a renderer made of a page: the document as HTML text, and warnings of the form ``code: what happened``.

    ``left_for`` are the URLs to which the page tried to send the whole browser once it was loaded; the renderer refuses all of them.
    """

    @property
    def html(self) -> str: ...

    @property
    def warnings(self) -> Sequence[str]: ...

    @property
    def left_for(self) -> Sequence[str]: ...


@attrs.frozen(kw_only=True)
class Rendering:
    """What became of a plain page that was given to a browser."""

    snapshot: Snapshot
    warnings: tuple[str, ...] = ()
    left_for: tuple[str, ...] = ()


class Renderer(Protocol):
    """Loads a URL in a contained browser, under the same egress rules as the fetch."""

    async def render(self, url: str) -> RenderedPage:
        """The rendered page. Raises a ForageError when there is none; the caller sets the deadline around it."""
        ...


def wants_render(render: Render, snapshot: Snapshot) -> bool:
    """Whether a plainly fetched page is to be rendered: always, or when it is an HTML text that looks like a shell."""
    if render != "on-shell":
        return render == "always"
    if not isinstance(snapshot.body, str) or "html" not in (snapshot.headers or {}).get("content-type", "").lower():
        return False
    return looks_like_js_shell(snapshot.body)


async def render_over(renderer: Renderer | None, url: str, plain: Snapshot, *, seconds: float) -> Rendering:
    """``plain`` with the body that the browser made of ``url``, or ``plain`` itself with a warning that says why not."""
    if renderer is None:
        return kept_plain(plain, "render-unavailable: no renderer was given")
    try:
        with trio.fail_after(seconds):
            page = await renderer.render(url)
        return Rendering(snapshot=rendered_snapshot(plain, page.html), warnings=tuple(page.warnings), left_for=tuple(page.left_for))
    except trio.TooSlowError:
        return kept_plain(plain, f"render-failed: it took more than {seconds:g} s")
    except ForageError as exc:
        return kept_plain(plain, f"render-failed: {exc}")


def kept_plain(plain: Snapshot, why: str) -> Rendering:
    """The plain page, and the warning why it was not rendered."""
    return Rendering(snapshot=plain, warnings=(f"{why}; the plain page is kept",))
