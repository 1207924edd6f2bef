"""The footer: keys of the open tab and of the frame, each shown whole or not at all."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

PADDING = 3
"""Cells around the key and what it does."""


class KeyBar(Footer):
    """Where the keys do not all fit, the last of the tab's own are left to help and palette, then the first of those
    that are to ``stay``."""

    def __init__(self, stay: Collection[str]) -> None:
        super().__init__(show_command_palette=False)
        self._stay = stay

    def compose(self) -> ComposeResult:
        keys = [key for key in super().compose() if isinstance(key, FooterKey)]
        over = sum(map(_width, keys)) - self.app.size.width
        own = [key for key in keys if key.action not in self._stay]
        for key in chain(reversed(own), [key for key in keys if key.action in self._stay]):
            if over <= 0:
                break
            keys.remove(key)
            over -= _width(key)
        yield from keys

    def on_resize(self) -> None:
        self.refresh(recompose=True)


def _width(key: FooterKey) -> int:
    return cell_len(key.key_display) + cell_len(key.description) + PADDING
