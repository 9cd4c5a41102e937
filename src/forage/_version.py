"""Which version of forage this is, as its installed package says. Loaded when it is asked for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("forage-crawl")
except PackageNotFoundError:  # a source tree that was put on the path without being installed
    __version__ = "0+unknown"
