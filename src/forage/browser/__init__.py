"""A contained Chromium: pages are rendered and watched behind the guard, and nothing they do goes unseen or outlives them.

Usable with the guard alone. Names load on first use; no browser is started, and none is needed, until a page is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.browser.browser import Browser as Browser
    from forage.browser.browser import open_browser as open_browser
    from forage.browser.doctor import Examination as Examination
    from forage.browser.doctor import Finding as Finding
    from forage.browser.doctor import examine as examine
    from forage.browser.errors import LeftBehindError as LeftBehindError
    from forage.browser.har import har_document as har_document
    from forage.browser.options import BrowserOptions as BrowserOptions
    from forage.browser.page_options import PageOptions as PageOptions
    from forage.browser.pool import BrowserPool as BrowserPool
    from forage.browser.pool import open_pool as open_pool
    from forage.browser.probe import ProbeOptions as ProbeOptions
    from forage.browser.probe import RequestLog as RequestLog
    from forage.browser.probe import probe_document as probe_document
    from forage.browser.programs import BrowserProgram as BrowserProgram
    from forage.browser.programs import find_program as find_program
    from forage.browser.render import ChromiumRenderer as ChromiumRenderer
    from forage.browser.render import RenderResult as RenderResult
    from forage.browser.request_log import BrowserFacts as BrowserFacts
    from forage.browser.request_log import ConsoleMessage as ConsoleMessage
    from forage.browser.request_log import CspIssue as CspIssue
    from forage.browser.request_log import Dialog as Dialog
    from forage.browser.request_log import Download as Download
    from forage.browser.request_log import PageOutcome as PageOutcome
    from forage.browser.request_log import RequestEntry as RequestEntry
    from forage.browser.request_log import RequestOutcome as RequestOutcome
    from forage.browser.request_log import Speculation as Speculation
    from forage.browser.request_log import Viewport as Viewport
    from forage.browser.visit import Visit as Visit
    from forage.browser.visit import visit_page as visit_page

_MODULES = {
    "browser": "Browser open_browser",
    "doctor": "Examination Finding examine",
    "errors": "LeftBehindError",
    "har": "har_document",
    "options": "BrowserOptions",
    "page_options": "PageOptions",
    "pool": "BrowserPool open_pool",
    "probe": "ProbeOptions RequestLog probe_document",
    "programs": "BrowserProgram find_program",
    "render": "ChromiumRenderer RenderResult",
    "request_log": ("BrowserFacts ConsoleMessage CspIssue Dialog Download PageOutcome RequestEntry RequestOutcome Speculation Viewport"),
    "visit": "Visit visit_page",
}

__getattr__, __dir__, __all__ = lazy_face(
    __name__, {name: f"forage.browser.{module}" for module, names in _MODULES.items() for name in names.split()}
)
