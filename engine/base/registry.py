"""What the core offers by name and extensions add to: backends, methods, estimators, measures.

An extension is a module with a submodule ``register`` whose ``register()`` adds its entries to the registries of the
core. It is light to import: an entry loads what it needs when it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

EXTENSIONS: list[str] = []
"""Names of modules, in the order in which they add; the root of the package names its own. Read once."""

_loading = threading.RLock()
_loaded: set[str] = set()


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they were added. The first read loads the extensions."""

    def __init__(self) -> None:
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Loads nothing. Raises `ValueError` if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{name} is registered already")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, T]:
        with _loading:  # another thread waits until all is there; an extension that reads while it adds does not
            for extension in EXTENSIONS:
                if extension not in _loaded:
                    _loaded.add(extension)
                    import_module(f"{extension}.register").register()
        return self._entries
