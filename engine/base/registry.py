"""What the core offers by name and extensions add to: backends, methods, estimators, measures.

An extension is a package with a module ``register`` that has a function for each registry it adds to, of that
registry's name: ``methods(registry)`` adds to the methods. The module is light to import; a function imports what its
entries are made of, and an entry what it needs when it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

EXTENSIONS: list[str] = []
"""Names of packages, in the order in which they add; the root of this package names its own."""


class Registry(Mapping[str, T]):
    """Entries by name: those of the core, then those that extensions add, which are loaded at the first read."""

    def __init__(self, name: str, entries: Mapping[str, T] | None = None) -> None:
        self.name = name
        self._entries = dict(entries or {})
        self._loaded: set[str] = set()
        self._loading = threading.RLock()

    def add(self, name: str, entry: T) -> None:
        """Loads nothing. Raises `ValueError` if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.name}: {name} is registered already")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, T]:
        with self._loading:  # another thread waits until all is there; an extension that reads while it adds does not
            for extension in EXTENSIONS:
                if extension not in self._loaded:
                    adds = getattr(import_module(f"{extension}.register"), self.name, None)
                    self._loaded.add(extension)  # not before: an import that failed is tried again
                    if adds is not None:
                        adds(self)
        return self._entries
