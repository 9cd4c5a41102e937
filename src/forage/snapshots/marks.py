"""A stand-in inside a text that is being decoded: a lone surrogate, which no table of an encoding holds.

It never leaves the decoders.
"""

from __future__ import annotations

__all__ = ["ERROR"]

ERROR = "\udfff"
"""An error that the standard replaces by U+FFFD, told apart from a U+FFFD that the bytes spell."""
