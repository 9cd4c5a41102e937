"""Regular expressions keep to what every supported Python matches alike.

Before Python 3.11.5 a possessive repeat of a group, such as ``(?:ab)++``, gives back to the wrong place when the group fails half-way,
and wrong matches are wrong hosts and wrong text here. A possessive repeat of one character or class is sound everywhere.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

import forage

SINGLE = {"LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY"}


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(forage.__path__, "forage."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def patterns_of(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Patterns that are kept by a module or by one of its classes."""
    places: list[tuple[str, Mapping[str, Any]]] = [(module.__name__, vars(module))]
    places += [(f"{module.__name__}.{name}", vars(value)) for name, value in vars(module).items() if isinstance(value, type)]
    for place, names in places:
        for name, value in names.items():
            if isinstance(value, re.Pattern):
                yield f"{place}.{name}", value


def possessive_groups(parsed: Any) -> Iterator[str]:
    """Possessive repeats of more than one character, anywhere in a parsed pattern."""
    for operation, argument in parsed:
        if str(operation) == "POSSESSIVE_REPEAT" and [str(inner) for inner, _ in argument[2]] not in [[name] for name in SINGLE]:
            yield str(argument[2])
        for part in argument if isinstance(argument, tuple | list) else ():
            for inner in part if isinstance(part, list) else [part]:
                if type(inner).__name__ == "SubPattern":
                    yield from possessive_groups(inner)


def parse(pattern: str | bytes, flags: int = 0) -> Any:
    return sys.modules["re._parser"].parse(pattern, flags)


@pytest.mark.parametrize("pattern", [r"(?:ab)++", r"x(?:a|(?:bc)*+)?", r"(?:[a-z]+){2,3}+", rb"(?=(?:ab)?+)"])
def test_the_check_finds_possessive_groups(pattern: str | bytes) -> None:
    assert list(possessive_groups(parse(pattern)))


@pytest.mark.parametrize("pattern", [r"[a-z]++", r"a*+", r"(?:a++b)+", r"[()*+]+", r"\)++"])
def test_the_check_lets_single_characters_be(pattern: str) -> None:
    assert not list(possessive_groups(parse(pattern)))


def test_no_pattern_repeats_a_group_possessively() -> None:
    found = dict(pattern for module in modules() for pattern in patterns_of(module))
    assert len(found) > 50
    assert [name for name, pattern in found.items() if list(possessive_groups(parse(pattern.pattern, pattern.flags)))] == []
