"""Stand-ins inside a text that is being decoded: lone surrogates, which no table of an encoding holds.

They never leave the decoders.
"""

from __future__ import annotations

__all__ = ["ERROR", "MIXED"]

ERROR = "\udfff"
"""An error that the standard replaces by U+FFFD, told apart from a U+FFFD that the bytes spell."""
MIXED = "\udffe"
"""The codec path cannot tell two characters apart here: the table path must decode the whole body."""
