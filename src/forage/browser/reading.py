"""What is read of a page that has come to rest: its document, visible text, a picture. A page may be busy for ever, or lie.

Every command has a deadline. A page that does not answer has its script ended, once; if it then still does not answer it hangs. The
document is read by the browser's own view of it, and what runs in the page runs in a world of its own, where scripts of the page have
changed nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress
from typing import Any, Final, Literal

from forage.browser.cdp import Call, JsonObject
from forage.browser.errors import CommandRefusedError, NoAnswerError
from forage.browser.page import Page
from forage.browser.wording import text_of, whole
from forage.browser.world import WORLD, measure
from forage.errors import BrowserError

__all__ = ["PageReader", "TooLargeError"]

_LARGE: Final = 8  # times as long for what may be large
_PATIENCE: Final = 3
_TALLEST: Final = 16_384
_MOST_ICONS: Final = 50
_ICONS: Final = f"Array.from(document.querySelectorAll('link[rel~=icon]')).slice(0, {_MOST_ICONS}).map(link => link.href)"


class TooLargeError(BrowserError):
    """A document or picture above its ceiling; nothing of it was taken."""


class PageReader:
    """Reads one page. ``seconds``: for one answer. ``stopped`` says that its script had to be ended before it answered."""

    def __init__(self, page: Page, seconds: float) -> None:
        self._page = page
        self._seconds = seconds
        self.stopped = False
        self._world: Any = None

    async def _ask(self, method: str, params: JsonObject | None = None, *, times: int = 1) -> JsonObject:
        """A command that a busy page keeps from being answered. Raises NoAnswerError when it hangs, PageGoneError, BrowserLostError."""
        seconds = times * self._seconds
        for _ in range(_PATIENCE):
            try:
                return await self._page.call(method, params, seconds=seconds)
            except NoAnswerError as exc:
                unanswered = exc
            # Another page may hold up the browser itself: then this one is not to blame.
            if not await self._page.is_browser_busy():
                if self.stopped:
                    raise unanswered
                break
        self.stopped = True
        await self.stop_scripts()
        return await self._page.call(method, params, seconds=seconds)

    async def stop_scripts(self) -> None:
        """End what a script of it is doing. Raises NoAnswerError, PageGoneError, BrowserLostError."""
        await self._page.call("Runtime.terminateExecution", seconds=self._seconds)

    async def _evaluate(self, expression: str, *, times: int = 1) -> Any:
        """The value of an expression in a world of our own; None when there is none."""
        if self._world is None:
            made = await self._ask("Page.createIsolatedWorld", {"frameId": self._page.notes.root, "worldName": WORLD})
            self._world = made.get("executionContextId")
        params = {"expression": expression, "returnByValue": True, "contextId": self._world}
        answer = await self._ask("Runtime.evaluate", params, times=times)
        result: Any = answer.get("result")
        return result.get("value") if isinstance(result, dict) else None

    async def is_awake(self) -> bool:
        """Whether the page answers at all, if need be after its script was ended."""
        return bool(await self._evaluate("true"))

    async def scroll_to_end(self) -> None:
        await self._evaluate("scrollTo(0, 1e6)")

    async def go_from_within(self, url: str) -> None:
        """Have the document itself go to ``url``. The page may refuse; an answer that does not come is not waited for."""
        with suppress(NoAnswerError, CommandRefusedError):
            await self._evaluate(f"location.replace({json.dumps(url)})")

    async def html(self, most: int) -> str:
        """The whole document as HTML, its doctype too; no shadow trees, no frames. Raises TooLargeError above ``most`` bytes."""
        # Each wait for an answer costs as much as the answer when all pages are busy: what does not depend on another is in line before it.
        early = self._page.post("DOM.getDocument", {"depth": 0})
        # Its size first: the text of a document of 100 MB would hold up every page of this browser.
        size = await self._evaluate(measure(most))
        if not isinstance(size, int) or size > most:
            raise TooLargeError(f"the document has more than {most} bytes")
        root = await self._root_node(early)
        # By the number that lasts: the other is void once the page has opened the same document anew.
        answer = await self._ask("DOM.getOuterHTML", {"backendNodeId": root.get("backendNodeId")}, times=_LARGE)
        html = text_of(answer, "outerHTML")
        if len(html) > most or len(html.encode()) > most:
            raise TooLargeError(f"the document has more than {most} bytes")
        return html

    async def console(self) -> None:
        """Have the page tell what scripts wrote to its console and what they threw: the browser keeps the last 1000 lines, up to 10 MB.

        A page that does not tell is not worth waiting for. Raises PageGoneError, BrowserLostError.
        """
        with suppress(NoAnswerError):
            told = self._page.post("Runtime.enable")
            self._page.post("Runtime.disable")
            await self._page.answer(told, seconds=self._seconds)

    async def text(self, most: int) -> str:
        """The text that can be seen. Raises TooLargeError above ``most`` characters."""
        text = await self._evaluate(f"(t => t.length > {most} ? null : t)(document.body ? document.body.innerText : '')", times=_LARGE)
        if not isinstance(text, str):
            raise TooLargeError(f"the text has more than {most} characters")
        return whole(text)

    async def screenshot(self, area: Literal["viewport", "full"]) -> bytes:
        """A PNG of what is in the window, or of the whole page up to 16384 pixels a side."""
        params: dict[str, Any] = {"format": "png"}
        if area == "full":
            answer = await self._ask("Page.getLayoutMetrics")
            size: Any = answer.get("cssContentSize")
            width, height = (min(float(size.get(side, 1)), _TALLEST) for side in ("width", "height")) if isinstance(size, dict) else (1, 1)
            params |= {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        answer = await self._ask("Page.captureScreenshot", params, times=_LARGE)
        try:
            return base64.b64decode(text_of(answer, "data"), validate=True)
        except binascii.Error as exc:
            raise BrowserError("the picture cannot be read") from exc

    async def icons(self) -> tuple[str, ...]:
        """URLs of the icons that the document names."""
        urls = await self._evaluate(_ICONS)
        whole_urls = [whole(url) for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
        return tuple(url.partition("#")[0] for url in whole_urls if url.startswith(("http:", "https:")))

    async def _root_node(self, early: Call) -> JsonObject:
        """The document's node; ``early`` is a call for it that was posted before, and may have got no answer."""
        answer = early.result
        if answer is None:
            answer = await self._ask("DOM.getDocument", {"depth": 0})
        root: Any = answer.get("root")
        if not isinstance(root, dict):
            raise BrowserError("the page has no document")
        return root
