"""The script that runs in every document beside the page's own, in a world of its own that no script of the page can see or change (pure).

Owns the measure of a document, and the watch that tells when it grows above its ceiling before it is laid out for the first time: laying
out a text of 100 MB takes minutes, in which the page answers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["TOO_LARGE", "WORLD", "world_commands"]

WORLD: Final = "forage"
TOO_LARGE: Final = "forageTooLarge"

# The measure is a lower bound of the document's text as HTML, and stops at the ceiling. It is taken after each change until the document
# is loaded, before anything can lay it out, and in some frames after that; less often when it takes long. Watching for ever would keep the
# page painting for ever. What is too large is taken out at once, as the browser tells nothing of it before the task ends that lays it out.
_SCRIPT: Final = """(() => {
  if (window !== window.top) return;
  const shown = NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT | NodeFilter.SHOW_COMMENT;
  const most = %d;
  globalThis.forageSize = () => {
    let size = 0;
    const walker = document.createTreeWalker(document, shown);
    while (size <= most && walker.nextNode()) {
      const node = walker.currentNode;
      size += node.nodeType === 1 ? 2 * node.localName.length + 5 : node.length;
    }
    return size;
  };
  let due = 0, frames = 0, over = false;
  const look = () => {
    const begun = performance.now();
    if (over || begun < due) return;
    if (forageSize() > most) {
      over = true;
      %s("");
      document.documentElement.remove();
    }
    const ended = performance.now();
    due = ended + 8 * (ended - begun);
  };
  const changes = new MutationObserver(look);
  changes.observe(document, {childList: true, subtree: true});
  const onFrame = () => {
    look();
    if (++frames < 30 && !over) requestAnimationFrame(onFrame);
  };
  addEventListener("load", () => {
    changes.disconnect();
    look();
    requestAnimationFrame(onFrame);
  });
})()"""


def world_commands(most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Commands for the root session, so that its documents are measured against ``most`` characters."""
    yield "Runtime.enable", {}
    yield "Runtime.addBinding", {"name": TOO_LARGE, "executionContextName": WORLD}
    yield "Page.addScriptToEvaluateOnNewDocument", {"source": _SCRIPT % (most, TOO_LARGE), "worldName": WORLD}
