"""Errors of the browser layer that callers outside of it need not tell apart."""

from __future__ import annotations

from forage.errors import BrowserError, BrowserErrorCode

__all__ = ["CommandRefusedError", "LeftBehindError", "NoAnswerError", "PageGoneError"]


class CommandRefusedError(BrowserError):
    """The browser answered a command with an error. ``number`` and ``said`` are its own, ``method`` is what was asked."""

    def __init__(self, method: str, number: int, said: str) -> None:
        self.method = method
        self.number = number
        self.said = said
        super().__init__(f"the browser refused {method}: {said}", code=BrowserErrorCode.REFUSED)


class NoAnswerError(BrowserError):
    """A command was not answered within its time: the page is busy, or the answer was too large to take."""

    def __init__(self, method: str, why: str) -> None:
        self.method = method
        super().__init__(f"no answer to {method}: {why}", code=BrowserErrorCode.NO_ANSWER)


class PageGoneError(BrowserError):
    """The page, frame or worker that was spoken to has crashed or closed; ``crashed`` says which."""

    def __init__(self, *, crashed: bool) -> None:
        self.crashed = crashed
        super().__init__("the page has crashed" if crashed else "the page has closed", code=BrowserErrorCode.PAGE_GONE)


class LeftBehindError(BrowserError):
    """Something of a browser could not be removed in time: ``processes`` still run, ``directory`` is still there (None when it is gone)."""

    def __init__(self, processes: tuple[int, ...], directory: str | None) -> None:
        self.processes = processes
        self.directory = directory
        numbers = ", ".join(map(str, processes)) or "none"
        place = "gone" if directory is None else f"still there ({directory})"
        super().__init__(f"a browser was not cleaned up: processes {numbers}, profile {place}", code=BrowserErrorCode.LEFT_BEHIND)
