"""The elements of a page that is XML: application/xhtml+xml, and XHTML inside other XML (pure).

expat parses; entities are off (a document that declares one is refused, so nothing can expand) and nothing outside is read. Owns which
elements an XML page has; what they mean is `links`' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.parsers import expat

__all__ = ["NotWellFormedError", "read_elements"]

_XHTML = "http://www.w3.org/1999/xhtml"
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_CHUNK = 64 * 1024

Element = tuple[str, Mapping[str, str]]


class NotWellFormedError(ValueError):
    """The text is no XML, or declares entities; ``elements`` holds those before the trouble."""

    def __init__(self, elements: list[Element]) -> None:
        self.elements = elements
        super().__init__("not well-formed, or declares entities")


class _EntityError(Exception):
    pass


def _refuse(*_: object) -> None:
    raise _EntityError


def read_elements(text: str, wanted: Callable[[str], bool], limit: int) -> list[Element]:
    """Names and attributes of the first ``limit`` wanted elements: XHTML's, and the links of SVG. Template content is left out.

    Raises `NotWellFormedError`. Linear in the text, which is fed in pieces.
    """
    elements: list[Element] = []
    inert = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal inert
        namespace, _, local = name.rpartition(" ")
        if local == "template" and namespace == _XHTML:
            inert += 1
        elif inert or not wanted(local) or len(elements) >= limit:
            return
        elif namespace == _XHTML or (namespace == _SVG and local == "a"):
            elements.append((local if namespace == _XHTML else "svg:a", {_plain(key): value for key, value in attributes.items()}))

    def end(name: str) -> None:
        nonlocal inert
        if inert and name == f"{_XHTML} template":
            inert -= 1

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = _refuse
    try:
        for at in range(0, len(text), _CHUNK):
            parser.Parse(text[at : at + _CHUNK].encode("utf-8", "replace"))
        parser.Parse(b"", True)
    except (expat.ExpatError, _EntityError) as exc:
        raise NotWellFormedError(elements) from exc
    return elements


def _plain(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return f"xlink:{local}" if namespace == _XLINK else local if not namespace else name
