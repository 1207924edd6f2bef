"""YAML of strangers: data alone, and not nested so deeply that the loader in C ends the process."""

from __future__ import annotations

from typing import Any

DEEPEST = 500
"""Levels of lists and tables in one another."""


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
