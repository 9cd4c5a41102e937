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


def read_elements(text: str, wanted: Callable[[str], bool], limit: int, *, lenient: bool = False) -> list[Element]:
    """Names and attributes of the first ``limit`` wanted elements: XHTML's, and the links of SVG. Template content is left out.

    ``lenient`` takes a page whose root has no namespace for XHTML: authors who declare the type of a page forget to declare that.
    Raises `NotWellFormedError`. Linear in the text, which is fed in pieces.
    """
    reader = _Reader(wanted, limit, lenient=lenient)
    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = _refuse
    try:
        for at in range(0, len(text), _CHUNK):
            parser.Parse(text[at : at + _CHUNK].encode("utf-8", "replace"))
        parser.Parse(b"", True)
    except (expat.ExpatError, _EntityError) as exc:
        raise NotWellFormedError(reader.elements) from exc
    return reader.elements


class _Reader:
    """The handlers of one document."""

    def __init__(self, wanted: Callable[[str], bool], limit: int, *, lenient: bool) -> None:
        self.elements: list[Element] = []
        self._wanted = wanted
        self._limit = limit
        self._lenient = lenient
        self._markup = {_XHTML}  # the namespaces whose elements are those of a page
        self._inert = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        if self._lenient:  # the root
            self._lenient = False
            if not namespace:
                self._markup.add(namespace)
        page = namespace in self._markup
        if local == "template" and page:
            self._inert += 1
        elif self._inert or not self._wanted(local) or len(self.elements) >= self._limit:
            return
        elif page or (namespace == _SVG and local == "a"):
            self.elements.append((local if page else "svg:a", {_plain(key): value for key, value in attributes.items()}))

    def end(self, name: str) -> None:
        namespace, _, local = name.rpartition(" ")
        if self._inert and local == "template" and namespace in self._markup:
            self._inert -= 1


def _plain(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return f"xlink:{local}" if namespace == _XLINK else local if not namespace else name
