"""The script that runs in every document beside the page's own, in a world of its own that no script of the page can see or change (pure).

Owns the measure of a document, and the watch that takes out one that grows above its ceiling before it is laid out for the first time:
laying out a text of 100 MB takes minutes, in which the page answers nothing. The browser is not asked to tell of it as it happens: for that
it would have to tell of every line that a page writes to its console, too, and a page that writes many would hold up all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["WORLD", "measure", "world_commands"]

WORLD: Final = "forage"

# A lower bound of the document's text as HTML, that stops above the ceiling.
_MEASURE: Final = """() => {
  const shown = NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT | NodeFilter.SHOW_COMMENT;
  const walker = document.createTreeWalker(document, shown);
  let size = 0;
  while (size <= %d && walker.nextNode()) {
    const node = walker.currentNode;
    size += node.nodeType === 1 ? 2 * node.localName.length + 5 : node.length;
  }
  return size;
}"""

# Measured after each change, before anything can lay it out, less often when that takes long; at most 30 times once it is loaded. A frame
# is asked for only where a change came too soon to be measured: frames cost a page that does not change more than all the rest of this.
_WATCH: Final = """(() => {
  if (window !== window.top) return;
  const most = %d, measure = %s;
  let due = 0, loaded = false, looks = 0, waits = false;
  globalThis.forageTakenOut = false;
  const look = () => {
    const begun = performance.now();
    if (forageTakenOut || waits) return;
    if (begun < due) {
      waits = loaded;
      if (waits) requestAnimationFrame(() => { waits = false; look(); });
      return;
    }
    if (measure() > most) {
      forageTakenOut = true;
      document.documentElement.remove();
    }
    const ended = performance.now();
    due = ended + 8 * (ended - begun);
    if (loaded && ++looks >= 30) changes.disconnect();
  };
  const changes = new MutationObserver(look);
  changes.observe(document, {childList: true, characterData: true, subtree: true});
  addEventListener("load", () => {
    loaded = true;
    look();
  });
})()"""


def measure(most: int) -> str:
    """An expression for our world: about how many characters the document has, more than ``most`` when it was taken out."""
    # A document without any script has none of ours either.
    return f"globalThis.forageTakenOut ? {most + 1} : ({_MEASURE % most})()"


def world_commands(most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Commands for the root session, so that its documents are watched."""
    yield "Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH % (most, _MEASURE % most), "worldName": WORLD}
