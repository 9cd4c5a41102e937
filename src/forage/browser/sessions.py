"""What each thing that the browser attaches to is told before it may run (pure).

Targets are attached while they wait; the last command lets them go. All of it is written in one go, in this order: a target that is let go
before its events are on makes requests that nobody sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from forage.browser.request_log import Viewport
from forage.browser.world import world_commands

__all__ = ["AUTO_ATTACH", "DOCUMENT_PATTERNS", "HTTPS_PATTERNS", "set_up_commands"]

_LEFT_OUT: Final = ("browser", "tab", "browser_ui")  # the last one is the browser's own popups: noise in every context
AUTO_ATTACH: Final[dict[str, Any]] = {
    "autoAttach": True,
    "waitForDebuggerOnStart": True,
    "flatten": True,
    "filter": [*({"type": kind, "exclude": True} for kind in _LEFT_OUT), {}],
}
# Service workers are attached by the browser's session; a page would attach them again, and each of their events would come twice.
_AUTO_ATTACH_BELOW: Final[dict[str, Any]] = {
    **AUTO_ATTACH,
    "filter": [*({"type": kind, "exclude": True} for kind in (*_LEFT_OUT, "service_worker")), {}],
}
DOCUMENT_PATTERNS: Final[dict[str, Any]] = {"patterns": [{"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}]}
HTTPS_PATTERNS: Final[dict[str, Any]] = {"patterns": [{"urlPattern": "https://*", "requestStage": "Request"}]}
_FRAMES: Final = frozenset(["page", "iframe"])


def set_up_commands(
    kind: str, *, root: bool, viewport: Viewport, user_agent: str | None, max_dom: int | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Commands for a target of this kind, in order. Kinds that do not know one of them answer with an error, which means nothing.

    ``max_dom``: characters of a document that is to be read, None when it is not.
    """
    yield "Network.enable", {"maxPostDataSize": 0}
    yield "Target.setAutoAttach", _AUTO_ATTACH_BELOW
    yield "Audits.enable", {}
    yield "Log.enable", {}
    if user_agent is not None:
        yield "Emulation.setUserAgentOverride", {"userAgent": user_agent}
    if kind in _FRAMES:
        yield "Page.enable", {}
        yield "Page.setLifecycleEventsEnabled", {"enabled": True}
        yield "Inspector.enable", {}
    if root:
        yield "Preload.enable", {}
        yield "Fetch.enable", DOCUMENT_PATTERNS
        yield "Emulation.setDeviceMetricsOverride", _metrics(viewport)
        yield from () if max_dom is None else world_commands(max_dom)
    yield "Runtime.runIfWaitingForDebugger", {}


def _metrics(viewport: Viewport) -> dict[str, Any]:
    return {"width": viewport.width, "height": viewport.height, "deviceScaleFactor": viewport.scale, "mobile": False}
