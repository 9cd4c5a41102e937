"""The seam to a browser: what a renderer is, and when a plain page is given to one.

Owns the protocol and the rules of ``render``; no browser is started here. A renderer that fails costs a warning, never the plain snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from forage.errors import ForageError, InvalidSnapshotError
from forage.fetch.settings import Render
from forage.snapshots import Snapshot, looks_like_js_shell, rendered_snapshot

__all__ = ["RenderedPage", "Renderer", "render_over", "wants_render"]


class RenderedPage(Protocol):
    """What a renderer made of a page: the document as HTML text, and warnings of the form ``code: what happened``."""

    @property
    def html(self) -> str: ...

    @property
    def warnings(self) -> Sequence[str]: ...


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


async def render_over(renderer: Renderer | None, url: str, plain: Snapshot, *, seconds: float) -> tuple[Snapshot, tuple[str, ...]]:
    """``plain`` with the body that the browser made of ``url``, or ``plain`` itself with a warning that says why not."""
    if renderer is None:
        return plain, ("render-unavailable: no renderer was given; the plain page is kept",)
    try:
        with trio.fail_after(seconds):
            page = await renderer.render(url)
        return rendered_snapshot(plain, page.html), tuple(page.warnings)
    except trio.TooSlowError:
        return plain, (f"render-failed: it took more than {seconds:g} s; the plain page is kept",)
    except InvalidSnapshotError as exc:
        return plain, (f"render-failed: {exc}; the plain page is kept",)
    except ForageError as exc:
        return plain, (f"render-failed: {exc}; the plain page is kept",)
