"""Cases, the adapters that check them, and the rule that no field of a case goes unread.

A vector file is a list of cases. An adapter drives the public code path for one case and answers None, or one line that says what
differs. Cases are handed over as `Case` mappings that remember which members were looked at: a member that was neither read
nor is known as informative fails the case, so that a new kind of expectation is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import attrs

__all__ = ["ADAPTERS", "INFORMATIVE", "Adapter", "Case", "Check", "adapter", "differs"]

INFORMATIVE = frozenset(
    ["id", "why", "bug", "strength", "note", "group", "google_cpp", "engine", "expect070", "treeSameAs070", "cname", "ttl", "alt_outcome"]
)


def _informative(name: str) -> bool:
    return name in INFORMATIVE or name.startswith("protego_")


class Case(Mapping[str, Any]):
    """One JSON object of a vector file; reading a member marks it as checked. Nested objects are Cases too."""

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self._data = data
        self._path = path
        self._read: set[str] = set()
        self._children: dict[str, list[Case]] = {}

    @property
    def id(self) -> str:
        return str(self._data["id"])

    def __getitem__(self, name: str) -> Any:
        value = self._data[name]
        self._read.add(name)
        if name not in self._children:
            self._children[name] = []
            if isinstance(value, dict):
                self._children[name] = [Case(value, f"{self._path}{name}.")]
            elif isinstance(value, list):
                self._children[name] = [Case(v, f"{self._path}{name}[{i}].") for i, v in enumerate(value) if isinstance(v, dict)]
        if isinstance(value, dict):
            return self._children[name][0]
        if isinstance(value, list) and self._children[name] and len(self._children[name]) == len(value):
            return list(self._children[name])
        self._children[name] = []  # a mixed list is handed over plain
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def plain(self, name: str, default: Any = None) -> Any:
        """The member as plain JSON, all of it counted as read."""
        self._read.add(name)
        self._children[name] = []
        return self._data.get(name, default)

    def whole(self) -> dict[str, Any]:
        """This object as plain JSON, all of it counted as read."""
        self._read.update(self._data)
        self._children.clear()
        return dict(self._data)

    def unread(self) -> list[str]:
        """Paths of members that nothing looked at and that are not informative."""
        found = [self._path + name for name in self._data if name not in self._read and not _informative(name)]
        for children in self._children.values():
            for child in children:
                found += child.unread()
        return found


Check = Callable[..., "str | Awaitable[str | None] | None"]
Session = Callable[[Path], AbstractAsyncContextManager[Any]]


@attrs.frozen(kw_only=True)
class Adapter:
    """How the cases of one file are run. ``together``: how many async cases run side by side.

    ``session`` is opened around them, with the path of the file; what it gives is the second argument of every check.
    """

    path: str
    check: Check
    together: int = 16
    session: Session | None = None


ADAPTERS: dict[str, Adapter] = {}


def adapter(path: str, *, together: int = 16, session: Session | None = None) -> Callable[[Check], Check]:
    """Register a function as the check of the file at ``path`` (relative to the vectors folder)."""

    def register(check: Check) -> Check:
        ADAPTERS[path] = Adapter(path=path, check=check, together=together, session=session)
        return check

    return register


def differs(what: str, got: object, expected: object) -> str | None:
    """None when equal, else one line that shows both."""
    if got == expected:
        return None
    return f"{what}: got {_short(got)}, expected {_short(expected)}"


def _short(value: object, limit: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
