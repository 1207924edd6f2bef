"""YAML of strangers: data alone, not nested so deeply that the loader in C ends the process, and not much more of it
than is written there: 500 bytes of aliases can stand for all memory."""

from __future__ import annotations

from typing import Any

DEEPEST = 500
"""Levels of lists and tables in one another."""
ALIASED, VALUE = 128 << 20, 64
"""Characters that the aliases of a file may stand for, and those that a value counts as beside its text."""


def yaml_loader(text: str | bytes) -> Any:
    """A loader of PyYAML that builds plain data. Raises `ValueError` if the text is nested too deeply, and what PyYAML
    raises if it is malformed."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"lists and tables in one another, more than {DEEPEST} deep")
    return loader(text)


def aliased(node: Any) -> int:
    """The characters that aliases below a node stand for. Raises `ValueError` if one stands for itself."""
    sizes: dict[int, int] = {}
    written = 0

    def size(part: Any) -> int:
        nonlocal written
        if (known := sizes.get(id(part))) is not None:
            if not known:
                raise ValueError("an alias stands for itself")
            return known
        sizes[id(part)] = 0
        alone = VALUE + (len(part.value) if isinstance(part.value, str) else 0)
        written += alone
        below = part.value if isinstance(part.value, list) else ()
        inner = (each for pair in below for each in (pair if isinstance(pair, tuple) else (pair,)))
        sizes[id(part)] = alone + sum(map(size, inner))
        return sizes[id(part)]

    return size(node) - written
